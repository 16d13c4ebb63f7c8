#include <algorithm>
#include <cstring>

#include "tf_rdmabatch/cc/transport/tcp/send_queue.h"

namespace rdmabatch::tcp {
namespace {

uint32_t PowerOfTwoAtLeast(uint32_t value) {
  uint32_t power = 1;
  while (power < value) power *= 2;
  return power;
}

// Indices wrap: at or past `mark` is less than half the range ahead of it.
bool Reached(uint32_t index, uint32_t mark) { return static_cast<int32_t>(index - mark) >= 0; }

FrameType TypeOf(OpCode op) {
  switch (op) {
    case OpCode::kWrite:
      return FrameType::kWrite;
    case OpCode::kWriteImm:
      return FrameType::kWriteImm;
    default:
      return FrameType::kRead;
  }
}

}  // namespace

SendQueue::SendQueue(const EndpointOptions& options)
    : depth_(options.send_queue_depth),
      entry_mask_(PowerOfTwoAtLeast(options.send_queue_depth) - 1),
      first_index_(options.first_index),
      entries_(new Entry[entry_mask_ + 1]),
      chains_(new Chain[entry_mask_ + 1]),
      reads_(new Read[entry_mask_ + 1]),
      first_chain_(options.first_index),
      last_chain_(options.first_index),
      posted_(options.first_index),
      announced_(options.first_index),
      reads_posted_(options.first_index),
      sent_(options.first_index),
      perceived_(options.first_index),
      reads_done_(options.first_index) {}

size_t SendQueue::Append(Span<const WorkRequest> chain) {
  uint32_t posted = posted_.load(std::memory_order_relaxed);
  uint32_t announced = announced_.load(std::memory_order_relaxed);
  uint32_t reads = reads_posted_.load(std::memory_order_relaxed);
  const uint32_t reads_before = reads;
  const size_t most = std::min<size_t>(chain.size(), free());
  size_t accepted = 0;
  for (; accepted < most; ++accepted) {
    const WorkRequest& request = chain[accepted];
    // Nothing travels for it, and nothing would come back.
    if (request.length == 0 && request.op != OpCode::kWriteImm) continue;
    Fill(request, &entry(posted++));
    if (request.op == OpCode::kWriteImm) ++announced;
    if (request.op == OpCode::kRead) {
      reads_[reads++ & entry_mask_] = {request.local, request.length};
    }
  }
  if (accepted == 0) return 0;
  const WorkRequest& last = chain[accepted - 1];
  chains_[last_chain_++ & entry_mask_] = {last.id,
                                          static_cast<uint32_t>(accepted),
                                          posted,
                                          announced,
                                          reads,
                                          last.op == OpCode::kWriteImm,
                                          reads != reads_before};
  in_flight_ += static_cast<uint32_t>(accepted);
  // The peer's answers may come as soon as the frames are seen.
  announced_.store(announced, std::memory_order_release);
  reads_posted_.store(reads, std::memory_order_release);
  posted_.store(posted, std::memory_order_release);
  return accepted;
}

void SendQueue::Fill(const WorkRequest& request, Entry* entry) {
  entry->frame.type = TypeOf(request.op);
  entry->frame.length = request.length;
  entry->frame.region = request.remote_key;
  entry->frame.immediate = request.op == OpCode::kWriteImm ? request.immediate : 0;
  entry->frame.offset = request.remote;
  entry->frame_bytes = sizeof(Frame);
  entry->payload_bytes = 0;
  if (request.op == OpCode::kRead) return;
  if (request.length > kMaxInline) {
    entry->payload = request.local;
    entry->payload_bytes = request.length;
  } else if (request.length != 0) {
    std::memcpy(entry->inlined, request.local, request.length);
    entry->frame_bytes += request.length;
  }
}

bool SendQueue::Complete(const Chain& chain) const {
  return Reached(sent_.load(std::memory_order_acquire), chain.end) &&
         (!chain.announces ||
          Reached(perceived_.load(std::memory_order_acquire), chain.announced)) &&
         (!chain.has_reads || Reached(reads_done_.load(std::memory_order_acquire), chain.reads));
}

size_t SendQueue::TakeCompletions(Span<Completion> completions) {
  size_t count = 0;
  for (; count < completions.size() && first_chain_ != last_chain_; ++first_chain_, ++count) {
    const Chain& chain = chains_[first_chain_ & entry_mask_];
    if (!Complete(chain)) break;
    in_flight_ -= chain.work_requests;
    completions[count] = {chain.id, 0, true, nullptr};
  }
  return count;
}

bool SendQueue::AddPerceived(uint32_t count) {
  const uint32_t perceived = perceived_.load(std::memory_order_relaxed);
  if (count > announced_.load(std::memory_order_acquire) - perceived) return false;
  perceived_.store(perceived + count, std::memory_order_release);
  return true;
}

SendQueue::Read* SendQueue::oldest_read() {
  const uint32_t done = reads_done_.load(std::memory_order_relaxed);
  return done == reads_posted_.load(std::memory_order_acquire) ? nullptr
                                                               : &reads_[done & entry_mask_];
}

}  // namespace rdmabatch::tcp
