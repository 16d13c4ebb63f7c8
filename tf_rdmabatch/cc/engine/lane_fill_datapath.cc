// The sending hot path, up to filled slots: TrySend -> Append -> FlushUnlessBusy. What fills most
// of a slot takes SendLarge instead of Append.
#include <cstring>

#include "tf_rdmabatch/cc/engine/lane.h"
#include "tf_rdmabatch/cc/engine/lane_words.h"

namespace rdmabatch {

SendOutcome Lane::TrySend(const OutgoingMessage& message, uint8_t flags, bool more) {
  const auto payload = static_cast<uint32_t>(message.head.size() + message.body.size());
  const auto need =
      static_cast<uint32_t>(sizeof(MessageHeader) + AlignUp(payload, kMessageAlignment));
  // Two of them would not share a slot.
  const bool large = need > peer_.slot_bytes / 2 && confirm_ == Confirm::kBatch;
  if (large) return SendLarge(message, flags, payload, more);
  const SendSide side(this);
  if (failed()) return SendOutcome::kFailed;
  if (confirm_ == Confirm::kEach) return SendEach(message, flags, payload);
  if (open_slot_ != kNoSlot &&
      (open_used_ + need > peer_.slot_bytes || open_count_ == kMaxSlotMessages)) {
    CloseSlot();
  }
  if (open_slot_ == kNoSlot && !OpenSlot()) {
    FlushLocked();
    return failed() ? SendOutcome::kFailed : SendOutcome::kNoSlot;
  }
  Append(message, flags, payload);
  FlushUnlessBusy(more);
  return SendOutcome::kSent;
}

// Copies while others may use the send side.
SendOutcome Lane::SendLarge(const OutgoingMessage& message, uint8_t flags, uint32_t payload,
                            bool more) {
  uint32_t slot;
  {
    const SendSide side(this);
    if (failed()) return SendOutcome::kFailed;
    if (open_slot_ != kNoSlot) CloseSlot();
    slot = TakeSlot();
    if (slot == kNoSlot) {
      FlushLocked();
      return failed() ? SendOutcome::kFailed : SendOutcome::kNoSlot;
    }
    sender_.BeginFilling(slot);
  }
  const uint32_t used = Compose(slot, sizeof(SlotHeader), message, flags, payload);
  const SendSide side(this);
  sender_.EndFilling(slot);
  if (failed()) return SendOutcome::kFailed;
  CountMessage(payload);
  Stage(slot, used, 1);
  FlushUnlessBusy(more);
  return SendOutcome::kSent;
}

uint32_t Lane::TakeSlot() {
  uint32_t slot = sender_.Take();
  if (slot == kNoSlot) {
    AbsorbFreed();
    slot = sender_.Take();
  }
  if (slot == kNoSlot) counters_.slot_stalls.Add(1);
  return slot;
}

bool Lane::OpenSlot() {
  open_slot_ = TakeSlot();
  open_used_ = sizeof(SlotHeader);
  open_count_ = 0;
  return open_slot_ != kNoSlot;
}

void Lane::Append(const OutgoingMessage& message, uint8_t flags, uint32_t payload) {
  open_used_ = Compose(open_slot_, open_used_, message, flags, payload);
  ++open_count_;
  CountMessage(payload);
}

// Returns where the next message of the slot would begin.
uint32_t Lane::Compose(uint32_t slot, uint32_t at, const OutgoingMessage& message, uint8_t flags,
                       uint32_t payload) const {
  uint8_t* to = SendSlot(slot) + at;
  const MessageHeader header{payload, static_cast<uint8_t>(message.kind), flags, 0, message.tag};
  std::memcpy(to, &header, sizeof(header));
  to += sizeof(header);
  if (!message.head.empty()) std::memcpy(to, message.head.data(), message.head.size());
  if (!message.body.empty())
    std::memcpy(to + message.head.size(), message.body.data(), message.body.size());
  return at + static_cast<uint32_t>(sizeof(header) + AlignUp(payload, kMessageAlignment));
}

void Lane::CountMessage(uint32_t payload) {
  counters_.messages_sent.Add(1);
  counters_.bytes_sent.Add(payload);
  counters_.copies.Add(1);
  counters_.bytes_copied.Add(payload);
}

void Lane::CloseSlot() {
  Stage(open_slot_, open_used_, open_count_);
  open_slot_ = kNoSlot;
}

// It goes with the next announcement.
void Lane::Stage(uint32_t slot, uint32_t used, uint32_t messages) {
  const SlotHeader header{used, static_cast<uint16_t>(messages), 0, batch_};
  std::memcpy(SendSlot(slot), &header, sizeof(header));
  used_[slot] = used;
  closed_slot_ = slot;
  ++staged_slots_;
  staged_bytes_ += used;
  counters_.slots_sent.Add(1);
}

// The baseline: a slot and a post a message, the payload's own write announces it, and its
// acknowledgement frees it.
SendOutcome Lane::SendEach(const OutgoingMessage& message, uint8_t flags, uint32_t payload) {
  if (sender_.free_slots() + window_ <= peer_.slots) AbsorbFreed();
  const bool room = HaveRoom(2);
  if (failed()) return SendOutcome::kFailed;
  if (!room) return SendOutcome::kNoSlot;
  if (sender_.free_slots() + window_ <= peer_.slots || !OpenSlot()) {
    counters_.slot_stalls.Add(1);
    return SendOutcome::kNoSlot;
  }
  const uint32_t slot = open_slot_;
  Append(message, flags, payload);
  CloseSlot();
  staged_slots_ = 0;
  staged_bytes_ = 0;
  sender_.AnnounceOne(slot);
  ++batch_;
  counters_.batches_sent.Add(1);
  WorkRequest& request = chain_[0];
  FillSlotWrite(&request, slot);
  if (peer_memory_.direct != nullptr) request.length = 0;
  request.op = OpCode::kWriteImm;
  request.immediate = kImmediateSlot | slot;
  request.inline_data = request.length <= endpoint_->max_inline();
  return PostChain({&request, 1}) ? SendOutcome::kSent : SendOutcome::kFailed;
}

void Lane::AbsorbFreed() {
  for (uint32_t w = 0; w < peer_.words(); ++w) {
    const uint64_t freed = LoadWord(segment_.data() + my_layout_.freed + w * sizeof(uint64_t));
    if (!sender_.AbsorbFreed(w, freed)) {
      Fail({StatusCode::kDataLoss,
            "the peer broke the protocol: it freed a slot that was never announced"});
      return;
    }
  }
}

}  // namespace rdmabatch
