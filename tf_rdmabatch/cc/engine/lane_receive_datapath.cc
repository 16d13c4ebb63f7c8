// The receiving hot path: OnImmediate -> ScanArrived -> Consume -> ReturnSlots -> PostFreedLocked.
#include <cstring>

#include "tf_rdmabatch/cc/engine/lane.h"
#include "tf_rdmabatch/cc/engine/lane_words.h"

namespace rdmabatch {
namespace {

constexpr uint32_t kProcessing = 1u << 31;

}  // namespace

void Lane::OnImmediate(uint32_t immediate) {
  if (failed()) return;
  if (!active_.load(std::memory_order_acquire))
    return Violate("a message before the connection was agreed");
  const uint32_t slot = immediate & ~kImmediateTypeMask;
  switch (immediate & kImmediateTypeMask) {
    case kImmediateWords:
      ScanArrived();
      writable_.Notify();
      return;
    case kImmediateSlot:
      if (slot >= mine_.slots || !receiver_.SeeOne(slot))
        return Violate("a slot was announced while in use");
      if (Consume(slot)) Acknowledge(slot);
      return;
    case kImmediateAck: {
      if (slot >= peer_.slots) return Violate("an acknowledgement of a slot that does not exist");
      auto* word =
          reinterpret_cast<uint64_t*>(segment_.data() + my_layout_.freed) + slot / kSlotsPerWord;
      __atomic_fetch_xor(word, uint64_t{1} << (slot % kSlotsPerWord), __ATOMIC_ACQ_REL);
      writable_.Notify();
      return;
    }
    default:
      return Violate("an immediate of unknown type");
  }
}

// News is walked in slot order. A slot whose message somebody holds stays; the others go back
// together.
void Lane::ScanArrived() {
  for (uint32_t w = 0; w < mine_.words(); ++w) {
    const uint64_t arrived = LoadWord(segment_.data() + my_layout_.arrived + w * sizeof(uint64_t));
    bool valid = true;
    const uint64_t news = receiver_.News(w, arrived, &valid);
    if (!valid) return Violate("a slot was announced while in use");
    uint64_t consumed = 0;
    ForEachBit(news, [&](int bit) {
      if (failed()) return;
      if (Consume(w * kSlotsPerWord + static_cast<uint32_t>(bit))) consumed |= uint64_t{1} << bit;
    });
    if (failed()) return;
    if (consumed != 0) ReturnSlots(w, consumed);
  }
}

// Hands the messages of a slot to the host. True when the slot can go back at once.
bool Lane::Consume(uint32_t slot) {
  const uint8_t* data = segment_.data() + my_layout_.slots + uint64_t{slot} * mine_.slot_bytes;
  SlotHeader header;
  std::memcpy(&header, data, sizeof(header));
  if (header.used < sizeof(header) || header.used > mine_.slot_bytes) {
    Violate("a slot says that it holds more than it can");
    return false;
  }
  if ((header.flags & kSlotNotifyFreed) != 0) freed_notify_.store(true, std::memory_order_relaxed);
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

void Lane::Acknowledge(uint32_t slot) {
  receiver_.Free(slot / kSlotsPerWord, uint64_t{1} << (slot % kSlotsPerWord));
  SpinGuard guard(send_flag_);
  if (failed()) return;
  while (endpoint_->send_queue_free() < 2) {
    PollSendLocked();
    if (failed()) return;
  }
  counters_.acks.Add(1);
  WorkRequest& request = chain_[0];
  request.op = OpCode::kWriteImm;
  request.immediate = kImmediateAck | slot;
  request.length = 0;
  request.inline_data = true;
  request.local = send_base_;
  request.remote = peer_memory_.address;
  request.remote_key = peer_memory_.key;
  PostChain(1);
}

void Lane::ReturnSlots(uint32_t word, uint64_t mask) {
  receiver_.Free(word, mask);
  freed_dirty_.fetch_or(uint64_t{1} << word, std::memory_order_acq_rel);
  SpinGuard guard(send_flag_);
  if (!failed()) PostFreedLocked();
}

bool Lane::Release(uint32_t slot) {
  if (slot >= mine_.slots || holds_[slot].load(std::memory_order_acquire) == 0) return false;
  if (holds_[slot].fetch_sub(1, std::memory_order_acq_rel) != 1) return true;
  if (confirm_ == Confirm::kEach) {
    Acknowledge(slot);
    return true;
  }
  // Its chain's other slots went back long ago, so the sender may be waiting for this one alone.
  freed_notify_.store(true, std::memory_order_relaxed);
  ReturnSlots(slot / kSlotsPerWord, uint64_t{1} << (slot % kSlotsPerWord));
  return true;
}

}  // namespace rdmabatch
