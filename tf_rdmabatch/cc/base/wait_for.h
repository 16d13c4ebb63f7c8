// A bounded wait for one socket, on the control path.
#ifndef TF_RDMABATCH_CC_BASE_WAIT_FOR_H_
#define TF_RDMABATCH_CC_BASE_WAIT_FOR_H_

#include <poll.h>

#include <cstdint>

#include "tf_rdmabatch/cc/base/clock.h"

namespace rdmabatch {

// Waits until the socket is readable or writable; false at the deadline.
inline bool WaitFor(int socket, int16_t events, Deadline deadline) {
  constexpr int kPollSliceMs = 1000;
  pollfd waiting{socket, events, 0};
  while (poll(&waiting, 1, deadline.RemainingMs(kPollSliceMs)) <= 0) {
    if (deadline.expired()) return false;
  }
  return true;
}

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_BASE_WAIT_FOR_H_
