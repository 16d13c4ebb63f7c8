// Waiting for rdma_cm events with deadlines.
#ifndef TF_RDMABATCH_CC_TRANSPORT_VERBS_CM_H_
#define TF_RDMABATCH_CC_TRANSPORT_VERBS_CM_H_

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/transport/verbs/handles.h"

namespace rdmabatch {
namespace verbs {

// `what` failed with errno `error`.
Status ErrnoStatus(const char* what, int error);

// A non-blocking event channel. Movable; used by one thread at a time. Must outlive its ids.
class CmChannel {
 public:
  static Result<CmChannel> Create();

  int fd() const { return channel_->fd; }

  // An id of a reliable connection that reports to this channel.
  Result<CmId> CreateId();
  // Makes `id` report here from now on. No event of the id may be unacknowledged.
  Status Adopt(rdma_cm_id* id);

  // The next event, or null when there is none now.
  Result<CmEvent> TryNext();
  // The next event; kDeadlineExceeded when none comes in time.
  Result<CmEvent> Next(Deadline deadline);
  // Waits for `type`. Any other event is kUnavailable and names it, a refusal kPermissionDenied.
  // `what` says what was waited for.
  Status Expect(rdma_cm_event_type type, const char* what, Deadline deadline);

 private:
  explicit CmChannel(CmEventChannel channel) : channel_(std::move(channel)) {}
  CmEventChannel channel_;
};

}  // namespace verbs
}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_TRANSPORT_VERBS_CM_H_
