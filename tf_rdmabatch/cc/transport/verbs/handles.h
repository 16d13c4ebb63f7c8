// RAII owners of verbs and rdma_cm objects. All need a loaded library (LoadLibrary).
#ifndef TF_RDMABATCH_CC_TRANSPORT_VERBS_HANDLES_H_
#define TF_RDMABATCH_CC_TRANSPORT_VERBS_HANDLES_H_

#include <memory>

#include "tf_rdmabatch/cc/transport/verbs/loader.h"

namespace rdmabatch {
namespace verbs {

struct Release {
  void operator()(ibv_pd* pd) const { Lib().ibv.dealloc_pd(pd); }
  void operator()(ibv_mr* mr) const { Lib().ibv.dereg_mr(mr); }
  void operator()(ibv_cq* cq) const { Lib().ibv.destroy_cq(cq); }
  void operator()(ibv_comp_channel* channel) const { Lib().ibv.destroy_comp_channel(channel); }
  void operator()(ibv_context** devices) const { Lib().cm.free_devices(devices); }
  void operator()(rdma_event_channel* channel) const { Lib().cm.destroy_event_channel(channel); }
  void operator()(rdma_cm_id* id) const { Lib().cm.destroy_id(id); }
  void operator()(rdma_cm_event* event) const { Lib().cm.ack_cm_event(event); }
};
struct ReleaseQueuePair {
  void operator()(rdma_cm_id* id) const { Lib().cm.destroy_qp(id); }
};

using ProtectionDomain = std::unique_ptr<ibv_pd, Release>;
using MemoryRegion = std::unique_ptr<ibv_mr, Release>;
// Destroying one blocks until its events are acknowledged.
using CompletionQueue = std::unique_ptr<ibv_cq, Release>;
using CompletionChannel = std::unique_ptr<ibv_comp_channel, Release>;
// The contexts of all devices, as rdma_cm opened them; they stay open while the list lives.
using DeviceList = std::unique_ptr<ibv_context*[], Release>;
using CmEventChannel = std::unique_ptr<rdma_event_channel, Release>;
// Destroying one blocks until its events are acknowledged.
using CmId = std::unique_ptr<rdma_cm_id, Release>;
// Acknowledges the event; what it points to (private data) is gone then.
using CmEvent = std::unique_ptr<rdma_cm_event, Release>;
// The queue pair of an rdma_cm id, which must outlive it.
using QueuePair = std::unique_ptr<rdma_cm_id, ReleaseQueuePair>;

}  // namespace verbs
}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_TRANSPORT_VERBS_HANDLES_H_
