// Monotonic time, deadlines and the bounded spin.
#ifndef TF_RDMABATCH_CC_BASE_CLOCK_H_
#define TF_RDMABATCH_CC_BASE_CLOCK_H_

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <limits>

namespace rdmabatch {

// Nanoseconds of CLOCK_MONOTONIC; comparable within one host only.
inline int64_t NowNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
}

// A point in time after which a wait gives up. Every wait in this library takes one.
class Deadline {
 public:
  static Deadline After(double seconds) {
    if (!(seconds > 0)) return Deadline(0);
    if (seconds > 1e9) return Deadline(std::numeric_limits<int64_t>::max());
    return Deadline(NowNs() + static_cast<int64_t>(seconds * 1e9));
  }

  bool expired() const { return NowNs() >= at_ns_; }
  int64_t at_ns() const { return at_ns_; }

  // What is left, rounded up to a millisecond, at most `cap_ms`; 0 once expired. Fits poll() and
  // epoll_wait().
  int RemainingMs(int cap_ms) const {
    int64_t left = at_ns_ - NowNs();
    if (left <= 0) return 0;
    int64_t ms = (left + 999999) / 1000000;
    return ms < cap_ms ? static_cast<int>(ms) : cap_ms;
  }

 private:
  explicit Deadline(int64_t at_ns) : at_ns_(at_ns) {}
  int64_t at_ns_;
};

// Whether another thread can run while this one spins.
inline bool SeveralProcessors() {
  static const bool several = sysconf(_SC_NPROCESSORS_ONLN) > 1;
  return several;
}

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// One step of a bounded wait before sleeping: costs little where there are several processors, and
// lets the other side run where there is one, for which sleeping and waking would cost much more.
inline void RelaxOrYield(int relaxes) {
  if (!SeveralProcessors()) {
    sched_yield();
    return;
  }
  for (int i = 0; i < relaxes; ++i) CpuRelax();
}

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_BASE_CLOCK_H_
