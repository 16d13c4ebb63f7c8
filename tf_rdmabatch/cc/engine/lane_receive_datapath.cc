// The receiving hot path: OnImmediate, then HandleArrivals -> ScanArrived -> Consume
// -> PostFreedLocked.
#include <cstring>
#include <utility>

#include "tf_rdmabatch/cc/engine/lane.h"
#include "tf_rdmabatch/cc/engine/lane_words.h"

namespace rdmabatch {
namespace {

constexpr uint32_t kProcessing = 1u << 31;

}  // namespace

bool Lane::OnImmediate(uint32_t immediate) {
  if (failed()) return false;
  if (!active_.load(std::memory_order_acquire)) {
    Violate("a message before the connection was agreed");
    return false;
  }
  const uint32_t slot = immediate & ~kImmediateTypeMask;
  switch (immediate & kImmediateTypeMask) {
    case kImmediateWords:
      if (immediate == kImmediateAnswer) {
        slots_requested_.store(false, std::memory_order_release);
      } else {
        ++batches_taken_;
      }
      return true;
    case kImmediateRequest:
      freed_notify_.store(true, std::memory_order_seq_cst);
      return true;
    case kImmediateSlot:
      if (confirm_ == Confirm::kBatch) {
        ++batches_taken_;
        lone_slot_ = slot;
        return true;
      }
      ArriveOne(slot);
      return false;
    default:
      // Senders that wait are woken once for all acknowledgements that came together.
      AcknowledgedOne(slot);
      return true;
  }
}

void Lane::ArriveOne(uint32_t slot) {
  if (slot >= mine_.slots || !receiver_.SeeOne(slot)) {
    return Violate("a slot was announced while in use");
  }
  ++batches_taken_;
  if (Consume(slot)) Acknowledge(slot);
}

void Lane::AcknowledgedOne(uint32_t slot) {
  if (slot >= peer_.slots) return Violate("an acknowledgement of a slot that does not exist");
  auto* word =
      reinterpret_cast<uint64_t*>(segment_.data() + my_layout_.freed) + slot / kSlotsPerWord;
  __atomic_fetch_xor(word, BitOf(slot), __ATOMIC_ACQ_REL);
}

void Lane::HandleArrivals() {
  if (failed()) return;
  if (confirm_ == Confirm::kEach) return writable_.Notify();
  ScanArrived();
  if (failed()) return;
  // A sender that waits is answered now, or by the first Release when every slot is held.
  if (freed_notify_.load(std::memory_order_seq_cst) && receiver_.held() < mine_.slots) {
    freed_dirty_.fetch_or(1, std::memory_order_acq_rel);
  }
  if (freed_dirty_.load(std::memory_order_relaxed) != 0) {
    const SendSide side(this);
    if (!failed()) PostFreedLocked();
  }
  writable_.Notify();
}

// News is walked in slot order. A slot whose message somebody holds stays; the others go back
// together.
void Lane::ScanArrived() {
  const uint32_t lone = std::exchange(lone_slot_, kNoSlot);
  if (lone != kNoSlot && batches_taken_ - batches_scanned_ == 1) return TakeLone(lone);
  for (uint32_t w = 0; w < mine_.words(); ++w) {
    const uint64_t arrived = LoadWord(segment_.data() + my_layout_.arrived + w * sizeof(uint64_t));
    bool valid = true;
    const uint64_t news = receiver_.News(w, arrived, &valid);
    if (!valid) return Violate("a slot was announced while in use");
    uint64_t consumed = 0;
    ForEachBit(news, [&](int bit) {
      const uint32_t slot = w * kSlotsPerWord + static_cast<uint32_t>(bit);
      if (failed() || !Announced(slot)) return;
      receiver_.See(w, uint64_t{1} << bit);
      if (Consume(slot)) consumed |= uint64_t{1} << bit;
    });
    if (failed()) return;
    if (consumed == 0) continue;
    receiver_.Free(w, consumed);
    freed_dirty_.fetch_or(uint64_t{1} << w, std::memory_order_acq_rel);
  }
  batches_scanned_ = batches_taken_;
}

// A lone message is found without a look at the words, which spares it a cache miss on both sides.
void Lane::TakeLone(uint32_t slot) {
  if (slot >= mine_.slots || !Announced(slot) || !receiver_.SeeOne(slot)) {
    return Violate("an announcement of a slot that did not arrive");
  }
  batches_scanned_ = batches_taken_;
  if (!Consume(slot)) return;
  const uint32_t w = slot / kSlotsPerWord;
  receiver_.Free(w, BitOf(slot));
  freed_dirty_.fetch_or(uint64_t{1} << w, std::memory_order_acq_rel);
}

// A word may show more than the immediates that were taken: without its immediate nothing grants
// that a slot's payload is there. Its header then is of a later announcement, or still an old one.
bool Lane::Announced(uint32_t slot) const {
  SlotHeader header;
  std::memcpy(&header, SlotData(slot), sizeof(header));
  return header.batch - batches_scanned_ < batches_taken_ - batches_scanned_;
}

// Hands the messages of a slot to the host. True when the slot can go back at once.
bool Lane::Consume(uint32_t slot) {
  const uint8_t* data = SlotData(slot);
  SlotHeader header;
  std::memcpy(&header, data, sizeof(header));
  if (header.used < sizeof(header) || header.used > mine_.slot_bytes) {
    Violate("a slot says that it holds more than it can");
    return false;
  }
  holds_[slot].store(kProcessing, std::memory_order_relaxed);
  uint32_t holds = 0;
  if (!ConsumeMessages(data, slot, header, &holds)) return false;
  return holds_[slot].fetch_sub(kProcessing - holds, std::memory_order_acq_rel) ==
         kProcessing - holds;
}

bool Lane::ConsumeMessages(const uint8_t* data, uint32_t slot, const SlotHeader& header,
                           uint32_t* holds) {
  uint64_t at = sizeof(SlotHeader);
  for (uint32_t i = 0; i < header.count; ++i) {
    MessageHeader message;
    if (header.used - at < sizeof(message)) {
      Violate("a slot ends within a message header");
      return false;
    }
    std::memcpy(&message, data + at, sizeof(message));
    at += sizeof(message);
    if (AlignUp(message.bytes, kMessageAlignment) > header.used - at) {
      Violate("a message is longer than its slot");
      return false;
    }
    receive_counters_.messages_received.Add(1);
    receive_counters_.bytes_received.Add(message.bytes);
    switch (host_->OnLaneMessage(message, {data + at, message.bytes}, {index_, slot})) {
      case Disposition::kDone:
        break;
      case Disposition::kHold:
        ++*holds;
        break;
      case Disposition::kViolate:
        Violate("a message was refused");
        return false;
    }
    at += AlignUp(message.bytes, kMessageAlignment);
  }
  return true;
}

// Where the send queue is full the rest goes from Service: completions may need this very thread.
void Lane::Acknowledge(uint32_t slot) {
  const SendSide side(this);
  if (failed()) return;
  owed_acks_.push_back(slot);
  PostAcksLocked();
}

bool Lane::Release(uint32_t slot) {
  if (slot >= mine_.slots || holds_[slot].load(std::memory_order_acquire) == 0) return false;
  if (holds_[slot].fetch_sub(1, std::memory_order_acq_rel) != 1) return true;
  if (confirm_ == Confirm::kEach) {
    Acknowledge(slot);
    return true;
  }
  receiver_.Free(slot / kSlotsPerWord, BitOf(slot));
  freed_dirty_.fetch_or(uint64_t{1} << (slot / kSlotsPerWord), std::memory_order_acq_rel);
  const SendSide side(this);
  if (!failed()) PostFreedLocked();
  return true;
}

}  // namespace rdmabatch
