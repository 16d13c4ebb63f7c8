// Timers: ends waiters when their time has come.
#ifndef TF_RDMABATCH_CC_BASE_TIMERS_H_
#define TF_RDMABATCH_CC_BASE_TIMERS_H_

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/thread.h"
#include "tf_rdmabatch/cc/base/waiter.h"

namespace rdmabatch {

// One thread that sleeps until the next waiter is due. Waiters are ended in that thread, so they
// may not block. Thread-safe.
class Timers {
 public:
  Timers() = default;
  ~Timers() { Stop(); }
  Timers(const Timers&) = delete;
  Timers& operator=(const Timers&) = delete;

  // Once, before anything waits for long.
  Status Start() {
    return StartThread(
        "rdmabatch-time", [this] { Run(); }, &thread_);
  }

  // Ends `waiter` at that time; with kCancelled when the timers are stopped before.
  void Add(std::shared_ptr<Waiter> waiter, Deadline at) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!stopped_) waiting_.emplace(at.at_ns(), std::exchange(waiter, nullptr));
    }
    if (waiter != nullptr) {
      waiter->End(Stopped());
    } else {
      changed_.notify_one();
    }
  }

  // Ends all waiters. Idempotent; not from a waiter.
  void Stop() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
    for (const auto& [at, waiter] : waiting_) waiter->End(Stopped());
    waiting_.clear();
  }

 private:
  static Status Stopped() { return {StatusCode::kCancelled, "the task has ended"}; }

  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stopped_) {
      if (waiting_.empty()) {
        changed_.wait(lock);
        continue;
      }
      const auto first = waiting_.begin();
      const int64_t left = first->first - NowNs();
      if (left > 0) {
        changed_.wait_for(lock, std::chrono::nanoseconds(left));
        continue;
      }
      const auto waiter = std::move(first->second);
      waiting_.erase(first);
      lock.unlock();
      waiter->End(Status::Ok());
      lock.lock();
    }
  }

  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<int64_t, std::shared_ptr<Waiter>> waiting_;  // mutex_: by the time in ns
  bool stopped_ = false;                                     // mutex_
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_BASE_TIMERS_H_
