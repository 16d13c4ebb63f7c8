// PollSet: the endpoints of a tcp transport, as its progress thread polls them.
#ifndef TF_RDMABATCH_CC_TRANSPORT_TCP_POLL_SET_H_
#define TF_RDMABATCH_CC_TRANSPORT_TCP_POLL_SET_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tf_rdmabatch/cc/base/span.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/base/unique_fd.h"
#include "tf_rdmabatch/cc/transport/poll_gate.h"
#include "tf_rdmabatch/cc/transport/transport.h"

namespace rdmabatch::tcp {

class TcpEndpoint;

// Control threads add and remove endpoints while the progress thread polls. Polling takes no lock
// unless the set has changed: it works on its own copy of the list.
class PollSet {
 public:
  static Result<std::shared_ptr<PollSet>> Create();

  // Any thread. The endpoint must stay until Remove returned.
  Status Add(TcpEndpoint* endpoint);
  void Remove(TcpEndpoint* endpoint);

  // Returns once no thread uses any more what it used when the call began: memory that was given
  // up, an endpoint that was removed. Any thread, not while it polls or sends.
  void AwaitQuiet();
  void AwaitOutside() const { gate_.AwaitOutside(); }

  // The progress thread: see Transport.
  size_t Poll(Span<Completion> completions);
  // Readable when a socket is.
  int epoll() const { return epoll_.get(); }

 private:
  PollSet(UniqueFd epoll, UniqueFd timer) : epoll_(std::move(epoll)), timer_(std::move(timer)) {}
  void Refresh();
  // Of endpoints that have to be watched.
  void Count(int change);
  void CheckPeers();

  const UniqueFd epoll_;
  const UniqueFd timer_;  // in epoll_; see kLookMs
  PollGate gate_;

  // The progress thread's.
  std::vector<TcpEndpoint*> polled_;
  uint64_t polled_version_ = 0;
  size_t next_ = 0;  // the endpoint served next
  int64_t checked_at_ns_ = 0;

  std::atomic<uint64_t> version_{0};  // of endpoints_
  std::mutex mutex_;
  int watched_ = 0;  // mutex_
  std::vector<TcpEndpoint*> endpoints_;
};

}  // namespace rdmabatch::tcp

#endif  // TF_RDMABATCH_CC_TRANSPORT_TCP_POLL_SET_H_
