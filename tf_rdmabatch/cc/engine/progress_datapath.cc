// The loop of the progress thread.
#include <errno.h>
#include <sys/epoll.h>

#include <utility>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/engine/progress.h"

namespace rdmabatch {
namespace {

constexpr size_t kCompletions = 64;
// Looks at the clock only so often while it spins.
constexpr int kPollsPerClock = 32;
// Tasks wait until arrivals are handled, but not for ever on a busy engine.
constexpr int kBusyPolls = 256;

}  // namespace

void ProgressThread::Run() {
  int64_t idle_since = 0;
  int polls = 0;
  int busy = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    if (Poll()) {
      idle_since = 0;
      if (++busy < kBusyPolls) continue;
    }
    busy = 0;
    if (RunTasks()) continue;
    if (spin_ns_ > 0) {
      if (idle_since == 0) idle_since = NowNs();
      if (++polls % kPollsPerClock != 0 || NowNs() - idle_since < spin_ns_) {
        CpuRelax();
        continue;
      }
    }
    Sleep();
    idle_since = 0;
  }
}

bool ProgressThread::Poll() {
  Completion completions[kCompletions];
  bool busy = false;
  for (const auto& transport : transports_) {
    const size_t n = transport->PollReceive(completions);
    for (size_t i = 0; i < n; ++i) {
      auto* lane = reinterpret_cast<Lane*>(completions[i].id);
      if (completions[i].ok) {
        lane->OnImmediate(completions[i].immediate);
      } else {
        lane->Fail({StatusCode::kUnavailable, completions[i].error});
      }
    }
    busy |= n > 0;
  }
  return ServeLanes() || busy;
}

bool ProgressThread::ServeLanes() {
  bool busy = false;
  for (const auto& connection : connections_) {
    if (connection->wants_service()) busy |= connection->Serve();
  }
  return busy;
}

bool ProgressThread::RunTasks() {
  if (!has_tasks_.load(std::memory_order_acquire)) return false;
  std::vector<std::function<void()>> tasks;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    tasks.swap(tasks_);
    has_tasks_.store(false, std::memory_order_relaxed);
  }
  for (const auto& task : tasks) task();
  return true;
}

// Arms every transport, looks once more, and only then sleeps, so that no arrival is missed.
void ProgressThread::Sleep() {
  for (const auto& transport : transports_) transport->PrepareSleep();
  if (!Poll() && !has_tasks_.load(std::memory_order_acquire)) {
    epoll_event events[8];
    const int n = epoll_wait(epoll_.get(), events, 8, 1000);
    if (n > 0) wakeups_.Add(1);
    uint64_t drained;
    while (n > 0 && read(wake_.get(), &drained, sizeof(drained)) < 0 && errno == EINTR) continue;
  }
  for (const auto& transport : transports_) transport->FinishSleep();
}

}  // namespace rdmabatch
