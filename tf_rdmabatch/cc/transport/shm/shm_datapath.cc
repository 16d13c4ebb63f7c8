// The hot path of ShmEndpoint.
#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tf_rdmabatch/cc/transport/shm/shm_endpoint.h"

namespace rdmabatch::shm {
namespace {

uint8_t* Pointer(uint64_t address) { return reinterpret_cast<uint8_t*>(address); }

// Bitmap and version words: aligned words are read and written whole.
bool IsWord(uint64_t address, uint32_t length) {
  return length == sizeof(uint64_t) && address % sizeof(uint64_t) == 0;
}

void Transfer(const WorkRequest& request) {
  uint8_t* remote = Pointer(request.remote);
  if (IsWord(request.remote, request.length)) {
    auto* word = reinterpret_cast<uint64_t*>(remote);
    uint64_t value;
    if (request.op == OpCode::kRead) {
      value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
      std::memcpy(request.local, &value, sizeof(value));
    } else {
      std::memcpy(&value, request.local, sizeof(value));
      __atomic_store_n(word, value, __ATOMIC_RELEASE);
    }
  } else if (request.op == OpCode::kRead) {
    std::memcpy(request.local, remote, request.length);
  } else {
    std::memcpy(remote, request.local, request.length);
  }
}

}  // namespace

size_t ShmEndpoint::Post(Span<const WorkRequest> chain) {
  if (chain.empty() || failure() != nullptr) return 0;
  const size_t most = std::min<size_t>(chain.size(), send_queue_free());
  uint32_t head = head_;
  uint64_t copies = 0;
  uint64_t bytes_copied = 0;
  size_t accepted = 0;
  for (; accepted < most; ++accepted) {
    const WorkRequest& request = chain[accepted];
    const bool announces = request.op == OpCode::kWriteImm;
    if (announces && !RoomForImmediate(head)) break;
    if (request.length != 0) {
      if (!InReach(request)) {
        Break(kOutOfReach);
        break;
      }
      Transfer(request);
      if (request.length > sizeof(uint64_t)) {
        ++copies;
        bytes_copied += request.length;
      }
    }
    if (announces)
      Ring(peer_page_)[head++ & peer_mask_].store(request.immediate, std::memory_order_relaxed);
  }
  if (accepted < chain.size() && failure() == nullptr) counters_->queue_stalls.Add(1);
  if (accepted == 0) return 0;

  const WorkRequest& last = chain[accepted - 1];
  chains_[last_chain_++ & chain_mask_] = {last.id, static_cast<uint32_t>(accepted), head,
                                          last.op == OpCode::kWriteImm};
  in_flight_ += static_cast<uint32_t>(accepted);
  counters_->doorbells.Add(1);
  counters_->work_requests.Add(accepted);
  if (copies != 0) {
    counters_->copies.Add(copies);
    counters_->bytes_copied.Add(bytes_copied);
  }
  if (head != head_) PublishHead(head);
  return accepted;
}

bool ShmEndpoint::RoomForImmediate(uint32_t head) {
  if (head - peer_tail_ < peer_limit_) return true;
  return LoadPeerTail() && head - peer_tail_ < peer_limit_;
}

bool ShmEndpoint::LoadPeerTail() {
  const uint32_t tail = peer_page_->tail.load();
  if (head_ - tail > head_ - peer_tail_) {  // it went back, or ahead of what was sent
    Break(kCorruptRing);
    return false;
  }
  peer_tail_ = tail;
  return true;
}

bool ShmEndpoint::InReach(const WorkRequest& request) const {
  if (request.remote_key >= kMaxRegions) return false;
  const Imported& region = imported_[request.remote_key];
  const uint64_t offset = request.remote - reinterpret_cast<uint64_t>(region.address);
  return offset <= region.bytes && request.length <= region.bytes - offset &&
         (request.op == OpCode::kRead || region.writable);
}

void ShmEndpoint::PublishHead(uint32_t head) {
  head_ = head;
  peer_page_->head.store(head);
  const uint32_t sleep = peer_page_->sleeping.load();
  if (sleep == 0 || sleep == last_woken_) return;
  last_woken_ = sleep;
  Wake();
}

void ShmEndpoint::Wake() {
  const uint64_t one = 1;
  while (write(peer_event_fd_.get(), &one, sizeof(one)) < 0 && errno == EINTR) continue;
  counters_->wakeups_sent.AddShared(1);
}

size_t ShmEndpoint::PollSend(Span<Completion> completions) {
  const Failure* failed = failure();
  size_t count = 0;
  if (failed == nullptr || failed == &kPeerGone) {
    for (; count < completions.size() && first_chain_ != last_chain_; ++first_chain_, ++count) {
      const Chain& chain = chains_[first_chain_ & chain_mask_];
      // Indices wrap: at or past `index` is less than half the range ahead of it.
      if (chain.announces && static_cast<int32_t>(peer_tail_ - chain.index) < 0 &&
          (!LoadPeerTail() || static_cast<int32_t>(peer_tail_ - chain.index) < 0)) {
        break;
      }
      in_flight_ -= chain.work_requests;
      completions[count] = {chain.id, 0, true, nullptr};
    }
    if (count != 0) counters_->send_completions.Add(count);
    failed = failure();
  }
  if (failed == nullptr) return count;
  return count + ReportFailure(completions.subspan(count), 0, &send_failure_reported_);
}

void ShmEndpoint::WantSendEvents(bool want) {
  if (want && ++want_number_ == 0) want_number_ = 1;
  peer_page_->want_tail.store(want ? want_number_ : 0);
}

size_t ShmEndpoint::TakeImmediates(Span<Completion> completions) {
  const uint32_t waiting = own_page_->head.load() - tail_;
  const Failure* failed = failure();
  if (failed != nullptr && (waiting == 0 || failed != &kPeerGone)) {
    if (failed == &kClosedHere) return 0;
    return ReportFailure(completions, context_, &receive_failure_reported_);
  }
  if (waiting == 0) return 0;
  if (waiting > limit_) {
    Break(kCorruptRing);
    return ReportFailure(completions, context_, &receive_failure_reported_);
  }
  const auto count = static_cast<uint32_t>(std::min<size_t>(waiting, completions.size()));
  for (uint32_t i = 0; i < count; ++i) {
    completions[i] = {context_,
                      Ring(own_page_)[(tail_ + i) & mask_].load(std::memory_order_relaxed), true,
                      nullptr};
  }
  tail_ += count;
  own_page_->tail.store(tail_);
  counters_->receive_completions.Add(count);
  const uint32_t want = own_page_->want_tail.load();
  if (want != 0 && want != last_wanted_) {
    last_wanted_ = want;
    Wake();
  }
  return count;
}

size_t ShmEndpoint::ReportFailure(Span<Completion> completions, uint64_t id, bool* reported) {
  if (*reported || completions.empty()) return 0;
  *reported = true;
  completions[0] = {id, 0, false, failure()->message};
  return 1;
}

}  // namespace rdmabatch::shm
