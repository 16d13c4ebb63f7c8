// The loop of the progress thread.
#include <errno.h>
#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/engine/progress.h"

namespace rdmabatch {
namespace {

constexpr size_t kCompletions = 64;
// Looks at the clock only so often while it spins.
constexpr int kPollsPerClock = 32;
// On one processor: chances for the peers to run before it sleeps.
constexpr int kYields = 16;
// Tasks wait until arrivals are handled, but not for ever on a busy engine.
constexpr int kBusyPolls = 256;
// Lanes that are confirmed one by one could keep the others waiting.
constexpr int kDrainRounds = 1024;

}  // namespace

void ProgressThread::Run() {
  int64_t idle_since = 0;
  int idle = 0;
  int busy = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    if (Poll()) {
      idle = 0;
      if (++busy < kBusyPolls) continue;
    }
    busy = 0;
    if (RunTasks()) continue;
    if (SeveralProcessors() && idle == 0) idle_since = NowNs();
    ++idle;
    const bool spin = SeveralProcessors()
                          ? idle % kPollsPerClock != 0 || NowNs() - idle_since < spin_ns_
                          : idle <= kYields && spin_ns_ > 0;
    if (spin) {
      RelaxOrYield(1);
      continue;
    }
    Sleep();
    idle = 0;
  }
}

bool ProgressThread::Poll() {
  Completion completions[kCompletions];
  bool busy = false;
  for (const auto& transport : transports_) {
    size_t n;
    int rounds = 0;
    do {
      n = transport->PollReceive(completions);
      for (size_t i = 0; i < n; ++i) Arrive(completions[i]);
      busy |= n > 0;
    } while (n == kCompletions && ++rounds < kDrainRounds);
  }
  for (Lane* lane : arrived_) lane->HandleArrivals();
  arrived_.clear();
  return ServeLanes() || busy;
}

void ProgressThread::Arrive(const Completion& completion) {
  auto* lane = reinterpret_cast<Lane*>(completion.id);
  if (!completion.ok) {
    // What came before the end counts.
    lane->HandleArrivals();
    return lane->Fail({StatusCode::kUnavailable, completion.error});
  }
  if (!lane->OnImmediate(completion.immediate)) return;
  if (std::find(arrived_.begin(), arrived_.end(), lane) == arrived_.end()) arrived_.push_back(lane);
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
  // What arrived before a task was made, the end of a connection above all, is handled before it.
  for (int polls = 0; polls < kBusyPolls && Poll(); ++polls) continue;
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
