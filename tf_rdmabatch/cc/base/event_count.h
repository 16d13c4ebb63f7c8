// SpinGuard and EventCount: the two ways in which this library's threads wait for each other.
#ifndef TF_RDMABATCH_CC_BASE_EVENT_COUNT_H_
#define TF_RDMABATCH_CC_BASE_EVENT_COUNT_H_

#include <sched.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "tf_rdmabatch/cc/base/clock.h"

namespace rdmabatch {

// Exclusive ownership of a lane's send side. One uncontended atomic exchange on the hot path; a
// waiter spins briefly and then yields, since the holder may need this very processor. Held for
// microseconds, never across a wait.
class SpinFlag {
 public:
  void Lock() {
    for (int spins = 0; flag_.exchange(true, std::memory_order_acquire); ++spins) {
      if (spins < 64) {
        CpuRelax();
      } else {
        sched_yield();
      }
    }
  }
  bool TryLock() { return !flag_.exchange(true, std::memory_order_acquire); }
  void Unlock() { flag_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> flag_{false};
};

class SpinGuard {
 public:
  explicit SpinGuard(SpinFlag& flag) : flag_(flag) { flag_.Lock(); }
  ~SpinGuard() { flag_.Unlock(); }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  SpinFlag& flag_;
};

// Lets threads sleep until a condition that others make true without a lock. Notify costs one load
// when nobody waits.
//
// Waiter: key = Prepare(); check the condition; Wait(key, deadline) or Cancel(). Notifier: make the
// condition true, Notify().
class EventCount {
 public:
  uint64_t Prepare() {
    waiters_.fetch_add(1, std::memory_order_acq_rel);
    return epoch_.load(std::memory_order_acquire);
  }
  void Cancel() { waiters_.fetch_sub(1, std::memory_order_relaxed); }

  // Returns after a Notify that came after Prepare, or at the deadline (false).
  bool Wait(uint64_t key, Deadline deadline) {
    std::unique_lock<std::mutex> lock(mutex_);
    bool notified = true;
    while (epoch_.load(std::memory_order_relaxed) == key) {
      int ms = deadline.RemainingMs(1000);
      if (ms == 0) {
        notified = false;
        break;
      }
      condition_.wait_for(lock, std::chrono::milliseconds(ms));
    }
    Cancel();
    return notified;
  }

  void Notify() {
    // Either this comes first, and who prepares then sees the condition, or it sees who waits. (A
    // fence would do as well, but the thread sanitizer does not understand it.)
    if (waiters_.fetch_add(0, std::memory_order_acq_rel) == 0) return;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      epoch_.fetch_add(1, std::memory_order_release);
    }
    condition_.notify_all();
  }

 private:
  std::atomic<uint64_t> epoch_{0};
  std::atomic<uint32_t> waiters_{0};
  std::mutex mutex_;
  std::condition_variable condition_;
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_BASE_EVENT_COUNT_H_
