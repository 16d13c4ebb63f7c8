// SendQueue: the chains of one endpoint, from Post until they are complete.
#ifndef TF_RDMABATCH_CC_TRANSPORT_TCP_SEND_QUEUE_H_
#define TF_RDMABATCH_CC_TRANSPORT_TCP_SEND_QUEUE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tf_rdmabatch/cc/base/span.h"
#include "tf_rdmabatch/cc/transport/tcp/wire.h"
#include "tf_rdmabatch/cc/transport/transport.h"

namespace rdmabatch::tcp {

// Payloads up to this size are copied during Post, which costs less than an entry of sendmsg.
constexpr uint32_t kMaxInline = 104;

// Four parties, each with an index of its own that the others only read: the send side (Append,
// TakeCompletions), whoever sends (entry, set_sent), and the progress thread (perceived, reads).
// Indices wrap.
class SendQueue {
 public:
  // A work request as it goes out: `frame_bytes` from `frame` on, which includes payload that was
  // copied, then `payload`.
  struct Entry {
    Frame frame;
    uint8_t inlined[kMaxInline];
    const uint8_t* payload;
    uint32_t payload_bytes;
    uint32_t frame_bytes;
  };
  // The part of a read that has not arrived.
  struct Read {
    uint8_t* to = nullptr;
    uint32_t left = 0;
  };

  explicit SendQueue(const EndpointOptions& options);

  // Send side. Returns how many of `chain` fit.
  size_t Append(Span<const WorkRequest> chain);
  size_t TakeCompletions(Span<Completion> completions);
  uint32_t free() const { return depth_ - in_flight_; }
  uint32_t chains_in_flight() const { return last_chain_ - first_chain_; }

  // Whoever sends: entries before posted() that were sent are set_sent().
  uint32_t posted() const { return posted_.load(std::memory_order_acquire); }
  Entry& entry(uint32_t index) { return entries_[index & entry_mask_]; }
  void set_sent(uint32_t index) { sent_.store(index, std::memory_order_release); }
  uint32_t first_index() const { return first_index_; }

  // Progress thread. False: more than were announced.
  bool AddPerceived(uint32_t count);
  // The oldest read that is not complete, or null. FinishRead when all of it has come.
  Read* oldest_read();
  void FinishRead() {
    reads_done_.store(reads_done_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

 private:
  // A chain that was posted and is not yet reported complete.
  struct Chain {
    uint64_t id;
    uint32_t work_requests;
    uint32_t end;        // posted_ after it
    uint32_t announced;  // announced_ after it
    uint32_t reads;      // reads_posted_ after it
    bool announces;      // ends in kWriteImm
    bool has_reads;
  };

  void Fill(const WorkRequest& request, Entry* entry);
  bool Complete(const Chain& chain) const;

  const uint32_t depth_;
  const uint32_t entry_mask_;
  const uint32_t first_index_;
  const std::unique_ptr<Entry[]> entries_;
  const std::unique_ptr<Chain[]> chains_;
  const std::unique_ptr<Read[]> reads_;

  // Send side.
  uint32_t in_flight_ = 0;
  uint32_t first_chain_;
  uint32_t last_chain_;
  std::atomic<uint32_t> posted_;
  std::atomic<uint32_t> announced_;
  std::atomic<uint32_t> reads_posted_;

  alignas(64) std::atomic<uint32_t> sent_;

  // Progress thread.
  alignas(64) std::atomic<uint32_t> perceived_;
  std::atomic<uint32_t> reads_done_;
};

}  // namespace rdmabatch::tcp

#endif  // TF_RDMABATCH_CC_TRANSPORT_TCP_SEND_QUEUE_H_
