// PollSet: the endpoints of a shared-memory transport, as its progress thread polls them.
#ifndef TF_RDMABATCH_CC_TRANSPORT_SHM_POLL_SET_H_
#define TF_RDMABATCH_CC_TRANSPORT_SHM_POLL_SET_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tf_rdmabatch/cc/base/span.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/base/unique_fd.h"
#include "tf_rdmabatch/cc/transport/transport.h"

namespace rdmabatch::shm {

class ShmEndpoint;

// Control threads add and remove endpoints while the progress thread polls. Polling takes no lock
// unless the set has changed: it works on its own copy of the list, which it takes again when
// `version_` has moved. `polling_` lets Remove wait for a poll in progress, after which nothing
// touches the endpoint any more.
class PollSet {
 public:
  static Result<std::shared_ptr<PollSet>> Create();

  // Any thread. The endpoint must stay until Remove returned.
  void Add(ShmEndpoint* endpoint);
  // Any thread. Waits at most for a Poll in progress, which never blocks.
  void Remove(ShmEndpoint* endpoint);

  // The progress thread: see Transport.
  size_t Poll(Span<Completion> completions);
  void PrepareSleep();
  void FinishSleep();

  // What peers write to wake the progress thread.
  int event_fd() const { return event_fd_.get(); }
  // In a child of fork() the connections are still the parent's, and there is no progress thread.
  bool forked() const;

 private:
  class Polling;

  explicit PollSet(UniqueFd event_fd);
  void Refresh();

  const UniqueFd event_fd_;
  const pid_t owner_;

  // The progress thread's.
  std::vector<ShmEndpoint*> polled_;
  uint64_t polled_version_ = 0;
  size_t next_ = 0;  // the endpoint served next
  bool asleep_ = false;
  uint32_t sleep_number_ = 0;

  std::atomic<uint64_t> polling_{0};  // odd during a poll
  std::atomic<uint64_t> version_{0};  // of endpoints_

  std::mutex mutex_;
  std::vector<ShmEndpoint*> endpoints_;
};

}  // namespace rdmabatch::shm

#endif  // TF_RDMABATCH_CC_TRANSPORT_SHM_POLL_SET_H_
