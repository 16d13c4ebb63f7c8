// The sending hot path from filled slots on: FlushUnlessBusy -> FlushLocked -> PostChain.
#include "tf_rdmabatch/cc/engine/lane.h"
#include "tf_rdmabatch/cc/engine/lane_words.h"

namespace rdmabatch {
namespace {

// Contiguous slots of a batch become one write when the gap between them is at most this: a work
// request costs more.
constexpr uint32_t kMergeGap = 512;
// WorkRequest::id of an announcement; others are 0 or the address of a TransferBatch.
constexpr uint64_t kAnnouncement = 1;

}  // namespace

// While `chains_in_flight_` chains are unperceived, messages gather for the next one: the peer has
// work, so gathering delays nobody. The next completion posts them, whoever perceives it.
void Lane::FlushUnlessBusy(bool more) {
  const bool full = staged_slots_ >= max_batch_ || staged_bytes_ + open_used_ >= batch_bytes_;
  if (more && !full) return;
  if (busy()) {
    PollSendLocked();
    if (busy() && staged_slots_ < max_batch_) {
      if (more) return;
      WantEventsLocked();
      PollSendLocked();  // a completion may have come before the wish to be woken by it
      if (busy()) return;
    }
  }
  FlushLocked();
}

uint64_t Lane::announced() {
  const SendSide side(this);
  return batch_;
}

bool Lane::Flush() {
  const SendSide side(this);
  return failed() || FlushLocked();
}

bool Lane::FlushLocked() {
  if (open_slot_ != kNoSlot) CloseSlot();
  if (staged_slots_ == 0) return true;
  if (!HaveRoom(staged_slots_ + mine_.words() + peer_.words() + 1)) return false;
  uint32_t length = 0;
  for (uint32_t w = 0; w < peer_.words(); ++w) length = AppendSlots(length, w);
  length = AppendFreedWords(length);
  for (uint32_t w = 0; w < peer_.words(); ++w) {
    if (sender_.Unannounced(w) == 0) continue;
    length = AppendWord(length, peer_layout_.arrived + w * sizeof(uint64_t), sender_.Announce(w));
  }
  chain_[length - 1].op = OpCode::kWriteImm;
  chain_[length - 1].immediate =
      staged_slots_ == 1 ? kImmediateSlot | closed_slot_ : kImmediateWords;
  staged_slots_ = 0;
  staged_bytes_ = 0;
  ++batch_;
  counters_.batches_sent.Add(1);
  ++announcing_;
  chain_[length - 1].id = kAnnouncement;
  if (!PostChain({chain_.data(), length})) return false;
  // Looked at now, completions delay nobody; before the next message they would.
  if (busy()) PollSendLocked();
  return true;
}

// One write for each run of neighbouring slots; none where the slots were composed in the peer's
// memory.
uint32_t Lane::AppendSlots(uint32_t length, uint32_t word) {
  if (peer_memory_.direct != nullptr) return length;
  uint32_t run_end = kNoSlot;
  ForEachBit(sender_.Unannounced(word), [&](int bit) {
    const uint32_t slot = word * kSlotsPerWord + static_cast<uint32_t>(bit);
    if (run_end == slot && peer_.slot_bytes - used_[slot - 1] <= kMergeGap) {
      WorkRequest& run = chain_[length - 1];
      run.length = static_cast<uint32_t>(SendSlot(slot) - run.local) + used_[slot];
    } else {
      FillSlotWrite(&chain_[length++], slot);
    }
    WorkRequest& last = chain_[length - 1];
    last.op = OpCode::kWrite;
    last.inline_data = last.length <= endpoint_->max_inline();
    run_end = slot + 1;
  });
  return length;
}

void Lane::FillSlotWrite(WorkRequest* request, uint32_t slot) const {
  request->id = 0;
  request->length = used_[slot];
  request->local = SendSlot(slot);
  request->local_key = staging_memory_.local_key;
  request->remote = peer_memory_.address + peer_layout_.slots + uint64_t{slot} * peer_.slot_bytes;
  request->remote_key = peer_memory_.key;
}

uint32_t Lane::AppendFreedWords(uint32_t length) {
  if (freed_dirty_.load(std::memory_order_relaxed) == 0) return length;
  ForEachBit(freed_dirty_.exchange(0, std::memory_order_acq_rel), [&](int w) {
    const auto word = static_cast<uint32_t>(w);
    length =
        AppendWord(length, peer_layout_.freed + word * sizeof(uint64_t), receiver_.freed(word));
    counters_.acks.Add(1);
  });
  return length;
}

uint32_t Lane::AppendWord(uint32_t length, uint64_t offset, uint64_t value) {
  word_values_[length] = value;
  WorkRequest& request = chain_[length];
  request.op = OpCode::kWrite;
  request.id = 0;
  request.inline_data = true;
  request.length = sizeof(uint64_t);
  request.local = reinterpret_cast<uint8_t*>(&word_values_[length]);
  request.local_key = 0;
  request.remote = peer_memory_.address + offset;
  request.remote_key = peer_memory_.key;
  return length + 1;
}

bool Lane::PostChain(Span<const WorkRequest> chain) {
  queued_ = true;
  if (endpoint_->Queue(chain) == chain.size()) return true;
  if (!failed()) PollSendLocked();  // it may know why
  if (!failed())
    Fail({StatusCode::kUnavailable, "the device refused work requests: the connection is broken"});
  return false;
}

// With an immediate only in answer to a sender that waits: others look at the words by themselves.
bool Lane::PostFreedLocked() {
  if (confirm_ == Confirm::kEach) return PostAcksLocked();
  if (freed_dirty_.load(std::memory_order_relaxed) == 0) return true;
  if (!HaveRoom(mine_.words() + 1)) return false;
  const bool answer = freed_notify_.exchange(false, std::memory_order_seq_cst);
  const uint32_t length = AppendFreedWords(0);
  if (length == 0) {
    if (answer) freed_notify_.store(true, std::memory_order_seq_cst);
    return true;
  }
  if (answer) {
    chain_[length - 1].op = OpCode::kWriteImm;
    chain_[length - 1].immediate = kImmediateAnswer;
  }
  return PostChain({chain_.data(), length});
}

// False when some have to wait for room.
bool Lane::PostAcksLocked() {
  while (!owed_acks_.empty()) {
    const bool room = HaveRoom(2);
    if (failed() || !room) return false;
    const uint32_t slot = owed_acks_.back();
    owed_acks_.pop_back();
    receiver_.Free(slot / kSlotsPerWord, BitOf(slot));
    counters_.acks.Add(1);
    if (!PostBare(kImmediateAck | slot)) return false;
  }
  return true;
}

// False when the send queue has no room for `requests`; a completion then wakes the progress
// thread.
bool Lane::HaveRoom(uint32_t requests) {
  if (endpoint_->send_queue_free() >= requests) return true;
  PollSendLocked();
  if (endpoint_->send_queue_free() >= requests) return true;
  counters_.queue_stalls.Add(1);
  WantEventsLocked();
  PollSendLocked();  // a completion may have come before the wish to be woken by it
  return endpoint_->send_queue_free() >= requests;
}

// One request at a time, so that its answers cannot pile up at a slow waiter. Confirming each, the
// acknowledgements come by themselves.
void Lane::WantSlots() {
  if (confirm_ == Confirm::kEach) return;
  const SendSide side(this);
  if (failed()) return;
  WantEventsLocked();
  PollSendLocked();
  if (failed()) return;
  if (slots_requested_.load(std::memory_order_acquire) || !HaveRoom(1)) return;
  slots_requested_.store(true, std::memory_order_relaxed);
  PostBare(kImmediateRequest);
}

bool Lane::PostBare(uint32_t immediate) {
  WorkRequest& request = chain_[0];
  request.op = OpCode::kWriteImm;
  request.id = 0;
  request.immediate = immediate;
  request.length = 0;
  request.inline_data = true;
  request.local = send_base_;
  request.remote = peer_memory_.address;
  request.remote_key = peer_memory_.key;
  return PostChain({&request, 1});
}

void Lane::PollSendLocked() {
  Completion completions[32];
  size_t total = 0;
  size_t n;
  do {
    n = endpoint_->PollSend(completions);
    total += n;
    for (size_t i = 0; i < n; ++i) {
      if (!completions[i].ok) {
        Fail({StatusCode::kUnavailable, completions[i].error});
        return;
      }
      if (completions[i].id == 0) continue;
      if (completions[i].id == kAnnouncement) {
        --announcing_;
      } else {
        --reinterpret_cast<TransferBatch*>(completions[i].id)->outstanding_;
      }
    }
  } while (n == sizeof(completions) / sizeof(completions[0]));
  // They may be another thread's.
  if (total > 0) writable_.Notify();
}

void Lane::WantEvents() {
  const SendSide side(this);
  if (failed()) return;
  WantEventsLocked();
  PollSendLocked();  // what completed before the wish
}

void Lane::WantEventsLocked() {
  wants_service_.store(true, std::memory_order_seq_cst);
  endpoint_->WantSendEvents(true);
}

bool Lane::Service() {
  bool advanced = false;
  {
    const SendSide side(this);
    if (failed()) return false;
    const uint32_t before = endpoint_->chains_in_flight();
    PollSendLocked();
    if (failed()) return true;
    advanced = endpoint_->chains_in_flight() < before;
    wants_service_.store(false, std::memory_order_relaxed);
    endpoint_->WantSendEvents(false);
    const bool gathered = staged_slots_ > 0 || open_slot_ != kNoSlot;
    if (!PostFreedLocked()) {
      // It asked to be woken.
    } else if (gathered && !busy()) {
      FlushLocked();
      advanced = true;
    } else if (gathered || (!advanced && endpoint_->chains_in_flight() > 0)) {
      WantEventsLocked();
    }
    if (wants_service()) {
      // A completion may have come before the wish to be woken by it, just before the sleep.
      const uint32_t waiting = endpoint_->chains_in_flight();
      PollSendLocked();
      advanced |= endpoint_->chains_in_flight() < waiting;
    }
  }
  if (advanced) writable_.Notify();
  return advanced;
}

}  // namespace rdmabatch
