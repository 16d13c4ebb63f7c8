// SendQueue: the sending half of a queue pair, with work requests that are linked once.
#ifndef TF_RDMABATCH_CC_TRANSPORT_VERBS_SEND_QUEUE_H_
#define TF_RDMABATCH_CC_TRANSPORT_VERBS_SEND_QUEUE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tf_rdmabatch/cc/transport/transport.h"
#include "tf_rdmabatch/cc/transport/verbs/handles.h"
#include "tf_rdmabatch/cc/transport/verbs/wire.h"

namespace rdmabatch {
namespace verbs {

// The window counts work requests as the caller gives them, of which at most `depth` are
// outstanding. On iWARP a kWriteImm is two requests of the device, a WRITE and a SEND, so the queue
// pair has twice as many entries there and the caller need not know.
//
// Post and Poll are of the send side (one thread at a time); the getters are for any thread.
class SendQueue {
 public:
  SendQueue(Fabric fabric, const EndpointOptions& options);

  // What to ask create_qp and create_cq for. Every entry can end in the completion queue when the
  // queue pair fails, signalled or not.
  uint32_t entries() const { return static_cast<uint32_t>(requests_.size()) + kSlack; }

  // Before the first Post. Both outlive it.
  void Attach(ibv_qp* queue_pair, ibv_cq* completions) {
    queue_pair_ = queue_pair;
    completions_ = completions;
  }

  // As Endpoint::Post. Sets *error to a static string when the device refused the chain.
  size_t Post(Span<const WorkRequest> chain, const char** error);
  // As Endpoint::PollSend, successes only. Sets *error when a completion has failed.
  size_t Poll(Span<Completion> completions, const char** error);

  uint32_t depth() const { return depth_; }
  uint32_t free() const { return depth_ - posted_.load(std::memory_order_relaxed); }
  uint32_t chains_in_flight() const { return chains_in_flight_.load(std::memory_order_relaxed); }

 private:
  struct Chain {
    uint64_t id;
    uint32_t length;
  };

  // Soft-iWARP recycles the queue entry just after it shows the completion: with a spare entry a
  // Post in between finds room.
  static constexpr uint32_t kSlack = 2;
  static constexpr int kPollBatch = 16;

  // Fills requests_[*used...] from `request`, advances *used.
  void Fill(const WorkRequest& request, size_t* used);
  int Ring(size_t used);
  // Soft-iWARP lets the completion of a later request overtake that of a READ. Where that would
  // complete a chain too early, its signalled request waits for the READs.
  void FenceReads(Span<const WorkRequest> chain, size_t used);

  const Fabric fabric_;
  const uint32_t depth_;
  const uint32_t chain_mask_;
  Counters* const counters_;
  ibv_qp* queue_pair_ = nullptr;
  ibv_cq* completions_ = nullptr;

  // requests_[i] points to entries_[i] and requests_[i + 1] for ever; Ring cuts the list for one
  // post.
  std::vector<ibv_send_wr> requests_;
  std::vector<ibv_sge> entries_;
  std::vector<uint32_t> words_;  // iWARP: the immediates, in network order

  // Outstanding chains in order, a ring; its two indices wrap.
  std::vector<Chain> chains_;
  uint32_t chain_head_;
  uint32_t chain_tail_;
  uint32_t after_reads_;  // the index behind the last chain with a READ
  // Written by the send side alone; atomic for readers.
  std::atomic<uint32_t> posted_{0};
  std::atomic<uint32_t> chains_in_flight_{0};
};

}  // namespace verbs
}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_TRANSPORT_VERBS_SEND_QUEUE_H_
