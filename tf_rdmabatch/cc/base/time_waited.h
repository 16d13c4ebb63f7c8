// How long a thread has waited for peers: whoever calls what may wait takes the difference.
#ifndef TF_RDMABATCH_CC_BASE_TIME_WAITED_H_
#define TF_RDMABATCH_CC_BASE_TIME_WAITED_H_

#include <cstdint>

#include "tf_rdmabatch/cc/base/clock.h"

namespace rdmabatch {

// Nanoseconds, of the calling thread.
inline int64_t& TimeWaited() {
  static thread_local int64_t waited = 0;
  return waited;
}

// A wait from Begin, of which only the first counts, until the end of the scope.
class ScopedWait {
 public:
  ScopedWait() = default;
  ~ScopedWait() {
    if (since_ != 0) TimeWaited() += NowNs() - since_;
  }
  ScopedWait(const ScopedWait&) = delete;
  ScopedWait& operator=(const ScopedWait&) = delete;

  void Begin() {
    if (since_ == 0) since_ = NowNs();
  }

 private:
  int64_t since_ = 0;
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_BASE_TIME_WAITED_H_
