#include "tf_rdmabatch/cc/transport/tcp/poll_set.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/transport/tcp/tcp_endpoint.h"
#include "tf_rdmabatch/cc/transport/tcp/watchdog.h"

namespace rdmabatch::tcp {

Result<std::shared_ptr<PollSet>> PollSet::Create() {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) {
    return Status(StatusCode::kResourceExhausted,
                  "creating an epoll descriptor: " + std::generic_category().message(errno));
  }
  UniqueFd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  epoll_event event{};
  event.events = EPOLLIN;
  if (!timer.valid() || epoll_ctl(epoll.get(), EPOLL_CTL_ADD, timer.get(), &event) != 0) {
    return Status(StatusCode::kResourceExhausted,
                  "creating a timer: " + std::generic_category().message(errno));
  }
  return std::shared_ptr<PollSet>(new PollSet(std::move(epoll), std::move(timer)));
}

Status PollSet::Add(TcpEndpoint* endpoint) {
  std::lock_guard<std::mutex> lock(mutex_);
  endpoints_.push_back(endpoint);
  version_.fetch_add(1);
  if (endpoint->watchdog().watches()) Count(1);
  return endpoint->link().Watch(endpoint);
}

void PollSet::Remove(TcpEndpoint* endpoint) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    endpoint->link().Unwatch();
    if (endpoint->watchdog().watches()) Count(-1);
    endpoints_.erase(std::remove(endpoints_.begin(), endpoints_.end(), endpoint), endpoints_.end());
    version_.fetch_add(1);
  }
  // A poll that begins from now on sees the new version.
  gate_.AwaitOutside();
}

// Without peers of other hosts the timer sleeps.
void PollSet::Count(int change) {
  watched_ += change;
  itimerspec time{};
  if (watched_ != 0) time.it_value.tv_nsec = time.it_interval.tv_nsec = kLookMs * 1000000;
  (void)timerfd_settime(timer_.get(), 0, &time, nullptr);
}

void PollSet::CheckPeers() {
  uint64_t expirations;
  if (read(timer_.get(), &expirations, sizeof(expirations)) < 0) return;
  const int64_t now = NowNs();
  const auto since_ms = static_cast<uint32_t>((now - checked_at_ns_) / 1000000);
  checked_at_ns_ = now;
  for (TcpEndpoint* endpoint : polled_) endpoint->CheckPeer(since_ms);
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
