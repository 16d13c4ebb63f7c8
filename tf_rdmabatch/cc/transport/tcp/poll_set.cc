#include "tf_rdmabatch/cc/transport/tcp/poll_set.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "tf_rdmabatch/cc/transport/tcp/tcp_endpoint.h"

namespace rdmabatch::tcp {

Result<std::shared_ptr<PollSet>> PollSet::Create() {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) {
    return Status(StatusCode::kResourceExhausted,
                  "creating an epoll descriptor: " + std::generic_category().message(errno));
  }
  return std::shared_ptr<PollSet>(new PollSet(std::move(epoll)));
}

Status PollSet::Add(TcpEndpoint* endpoint) {
  std::lock_guard<std::mutex> lock(mutex_);
  endpoints_.push_back(endpoint);
  version_.fetch_add(1);
  return endpoint->link().Watch(endpoint);
}

void PollSet::Remove(TcpEndpoint* endpoint) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    endpoint->link().Unwatch();
    endpoints_.erase(std::remove(endpoints_.begin(), endpoints_.end(), endpoint), endpoints_.end());
    version_.fetch_add(1);
  }
  // A poll that begins from now on sees the new version.
  gate_.AwaitOutside();
}

void PollSet::AwaitQuiet() {
  gate_.AwaitOutside();
  std::lock_guard<std::mutex> lock(mutex_);
  for (TcpEndpoint* endpoint : endpoints_) endpoint->output().AwaitOutside();
}

void PollSet::Refresh() {
  std::lock_guard<std::mutex> lock(mutex_);
  polled_ = endpoints_;
  polled_version_ = version_.load();
  if (next_ >= polled_.size()) next_ = 0;
}

}  // namespace rdmabatch::tcp
