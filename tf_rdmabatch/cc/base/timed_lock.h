// TimedLock: exclusive for longer than moments.
#ifndef TF_RDMABATCH_CC_BASE_TIMED_LOCK_H_
#define TF_RDMABATCH_CC_BASE_TIMED_LOCK_H_

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/event_count.h"

namespace rdmabatch {

// The next in line sleeps, until its deadline.
class TimedLock {
 public:
  bool Lock(Deadline deadline) {
    while (!flag_.TryLock()) {
      const uint64_t key = released_.Prepare();
      if (flag_.TryLock()) {
        released_.Cancel();
        break;
      }
      if (!released_.Wait(key, deadline)) return false;
    }
    return true;
  }
  void Unlock() {
    flag_.Unlock();
    released_.Notify();
  }

 private:
  SpinFlag flag_;
  EventCount released_;
};

class TimedGuard {
 public:
  TimedGuard(TimedLock& lock, Deadline deadline) : lock_(lock), locked_(lock.Lock(deadline)) {}
  ~TimedGuard() {
    if (locked_) lock_.Unlock();
  }
  TimedGuard(const TimedGuard&) = delete;
  TimedGuard& operator=(const TimedGuard&) = delete;
  bool locked() const { return locked_; }

 private:
  TimedLock& lock_;
  const bool locked_;
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_BASE_TIMED_LOCK_H_
