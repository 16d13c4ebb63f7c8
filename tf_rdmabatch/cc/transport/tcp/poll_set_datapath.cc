#include <sys/epoll.h>

#include <algorithm>

#include "tf_rdmabatch/cc/transport/tcp/poll_set.h"
#include "tf_rdmabatch/cc/transport/tcp/tcp_endpoint.h"

namespace rdmabatch::tcp {
namespace {

// What one endpoint can take of a poll before the others have their turn.
constexpr size_t kMaxPerVisit = 16;
constexpr int kEvents = 64;

}  // namespace

size_t PollSet::Poll(Span<Completion> completions) {
  const PollGate::Inside inside(&gate_);
  if (version_.load() != polled_version_) Refresh();
  epoll_event events[kEvents];
  const int n = epoll_wait(epoll_.get(), events, kEvents, 0);
  for (int i = 0; i < n; ++i) {
    if (events[i].data.ptr == nullptr) {
      CheckPeers();
    } else {
      static_cast<TcpEndpoint*>(events[i].data.ptr)->Note(events[i].events);
    }
  }
  size_t taken = 0;
  for (size_t visits = polled_.size(); visits > 0 && taken < completions.size(); --visits) {
    TcpEndpoint* endpoint = polled_[next_];
    next_ = next_ + 1 == polled_.size() ? 0 : next_ + 1;
    taken += endpoint->Visit(
        completions.subspan(taken).first(std::min(kMaxPerVisit, completions.size() - taken)));
  }
  return taken;
}

}  // namespace rdmabatch::tcp
