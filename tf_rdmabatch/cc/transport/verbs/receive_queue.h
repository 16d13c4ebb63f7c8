// The receiving half: ReceiveQueue is one endpoint's receives, ReceiveGroup the completion queue
// that up to 16 endpoints share.
#ifndef TF_RDMABATCH_CC_TRANSPORT_VERBS_RECEIVE_QUEUE_H_
#define TF_RDMABATCH_CC_TRANSPORT_VERBS_RECEIVE_QUEUE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/memory/segment.h"
#include "tf_rdmabatch/cc/transport/verbs/handles.h"
#include "tf_rdmabatch/cc/transport/verbs/wire.h"

namespace rdmabatch {
namespace verbs {

class VerbsEndpoint;

// The receives of one queue pair. Each has a word of registered memory: iWARP carries the immediate
// in it, and Soft-iWARP refuses receives without memory. Used by the progress thread alone after
// Start.
class ReceiveQueue {
 public:
  // wr_id of a receive: its index and the member of the group.
  static constexpr uint32_t kMemberBits = 4;

  static Result<std::unique_ptr<ReceiveQueue>> Create(ibv_pd* pd, uint32_t receives);

  // As in SendQueue: an entry is recycled just after its completion shows.
  uint32_t entries() const { return static_cast<uint32_t>(requests_.size()) + kSlack; }

  // Posts all receives. The queue pair outlives it.
  Status Start(ibv_qp* queue_pair, uint32_t member);

  // Reads the immediate of a completed receive; false when the peer sent something else.
  bool Read(const ibv_wc& completion, Fabric fabric, uint32_t* immediate) const;
  // Queues the completed receive for Repost.
  void Return(const ibv_wc& completion);
  // Gives everything queued back to the device with one call; false when it refuses.
  bool Repost();

 private:
  static constexpr uint32_t kSlack = 2;

  ReceiveQueue(Segment words, MemoryRegion region, uint32_t receives);

  Segment words_;
  MemoryRegion region_;
  std::vector<ibv_recv_wr> requests_;
  std::vector<ibv_sge> entries_;
  ibv_qp* queue_pair_ = nullptr;
  ibv_recv_wr* pending_ = nullptr;
};

// One completion queue for the receives of its members. A member's place is taken and given back
// under the transport's mutex; the progress thread reads the pointers.
struct ReceiveGroup {
  static constexpr uint32_t kMembers = 1u << ReceiveQueue::kMemberBits;

  struct Member {
    std::atomic<VerbsEndpoint*> endpoint{nullptr};
    uint32_t receives = 0;     // completions reserved; 0 when the place is free
    uint64_t reusable_at = 0;  // of a member that left: when `drained` is here, none of its
                               // completions can be left in the queue
  };

  // A free place with room for `receives` completions in the queue.
  bool FindPlace(uint32_t receives, uint32_t* member);

  CompletionQueue completions;
  uint32_t capacity = 0;  // of the completion queue
  std::array<Member, kMembers> members;
  // How often the progress thread saw the queue empty.
  std::atomic<uint64_t> drained{0};
  // Of the progress thread: an event is requested and has not come.
  bool armed = false;
};

}  // namespace verbs
}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_TRANSPORT_VERBS_RECEIVE_QUEUE_H_
