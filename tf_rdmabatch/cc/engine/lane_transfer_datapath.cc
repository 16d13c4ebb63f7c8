// One-sided transfers: PostTransfers, which shares the send queue with the messages.
#include <algorithm>

#include "tf_rdmabatch/cc/engine/lane.h"

namespace rdmabatch {
namespace {

// Largest single one-sided operation; devices limit it (Soft-RoCE to 8 MiB).
constexpr uint64_t kMaxTransferBytes = 4u << 20;
constexpr uint32_t kTransferChain = 32;

}  // namespace

bool Lane::PostTransfers(Span<const Transfer> transfers, TransferBatch* batch) {
  const SendSide side(this);
  if (failed()) return false;
  PollSendLocked();
  while (!failed() && !batch->posted_all_) {
    WorkRequest requests[kTransferChain];
    uint32_t length = 0;
    const uint32_t room = endpoint_->send_queue_free();
    // Leaves room for a chain of messages: bulk transfers do not starve them.
    const auto reserve = static_cast<uint32_t>(chain_.size());
    while (length < kTransferChain && length + reserve < room && batch->next_ < transfers.size()) {
      const Transfer& t = transfers[batch->next_];
      const uint64_t bytes = std::min(t.bytes - batch->next_offset_, kMaxTransferBytes);
      WorkRequest& request = requests[length++];
      request.op = t.op;
      request.length = static_cast<uint32_t>(bytes);
      request.local = t.local.address + t.local_offset + batch->next_offset_;
      request.local_key = t.local.local_key;
      request.remote = t.remote.address + t.remote_offset + batch->next_offset_;
      request.remote_key = t.remote.key;
      batch->next_offset_ += bytes;
      (t.op == OpCode::kRead ? counters_.bytes_read : counters_.bytes_written).Add(bytes);
      if (batch->next_offset_ == t.bytes) {
        ++batch->next_;
        batch->next_offset_ = 0;
      }
    }
    batch->posted_all_ = batch->next_ == transfers.size();
    if (length == 0) break;
    requests[length - 1].id = reinterpret_cast<uint64_t>(batch);
    ++batch->outstanding_;
    if (!PostChain({requests, length})) return false;
  }
  return batch->done();
}

}  // namespace rdmabatch
