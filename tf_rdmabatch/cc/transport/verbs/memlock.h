// How much memory this process may pin, checked before registering rather than learnt from ENOMEM.
#ifndef TF_RDMABATCH_CC_TRANSPORT_VERBS_MEMLOCK_H_
#define TF_RDMABATCH_CC_TRANSPORT_VERBS_MEMLOCK_H_

#include <cstdint>
#include <limits>

#include "tf_rdmabatch/cc/base/status.h"

namespace rdmabatch {
namespace verbs {

struct Memlock {
  static constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
  uint64_t limit = kUnlimited;  // RLIMIT_MEMLOCK; unlimited with CAP_IPC_LOCK too
  uint64_t pinned = 0;          // by this process now

  static Memlock Read();

  // OK, or kPermissionDenied with the limit, the need and how to raise it.
  Status Check(uint64_t bytes) const;
};

}  // namespace verbs
}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_TRANSPORT_VERBS_MEMLOCK_H_
