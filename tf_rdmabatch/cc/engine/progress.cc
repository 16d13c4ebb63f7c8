#include "tf_rdmabatch/cc/engine/progress.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/thread.h"

namespace rdmabatch {
namespace {

int64_t SpinNs(double spin_us) { return static_cast<int64_t>((spin_us < 0 ? 50 : spin_us) * 1000); }

Status FromErrno(const char* what) {
  return {StatusCode::kResourceExhausted, std::string(what) + ": " + std::strerror(errno)};
}

}  // namespace

ProgressThread::ProgressThread(std::vector<std::shared_ptr<Transport>> transports, double spin_us)
    : transports_(std::move(transports)), spin_ns_(SpinNs(spin_us)) {}

Status ProgressThread::Start() {
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  wake_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_.valid() || !wake_.valid()) return FromErrno("creating the progress thread's events");
  std::vector<int> fds = {wake_.get()};
  for (const auto& transport : transports_) fds.push_back(transport->event_fd());
  for (int fd : fds) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return FromErrno("watching a transport");
    }
  }
  return StartThread(
      "rdmabatch-prog", [this] { Run(); }, &thread_);
}

void ProgressThread::Stop() {
  if (!thread_.joinable()) return;
  Enqueue([this] { stop_.store(true, std::memory_order_relaxed); });
  thread_.join();
}

void ProgressThread::Enqueue(std::function<void()> task) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  has_tasks_.store(true, std::memory_order_release);
  const uint64_t one = 1;
  while (write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) continue;
}

void ProgressThread::Add(std::shared_ptr<Connection> connection) {
  Enqueue([this, connection = std::move(connection)] { connections_.push_back(connection); });
}

void ProgressThread::Remove(Connection* connection) {
  Enqueue([this, connection] {
    connections_.erase(std::remove_if(connections_.begin(), connections_.end(),
                                      [&](const auto& c) { return c.get() == connection; }),
                       connections_.end());
  });
}

void ProgressThread::AfterArrivals(std::function<void()> task) { Enqueue(std::move(task)); }

}  // namespace rdmabatch
