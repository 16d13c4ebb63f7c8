#include "tf_rdmabatch/cc/transport/verbs/memlock.h"

#include <linux/capability.h>
#include <sys/resource.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace rdmabatch {
namespace verbs {
namespace {

std::string Size(uint64_t bytes) {
  if (bytes < 1024 * 1024) return std::to_string((bytes + 1023) / 1024) + " KiB";
  return std::to_string((bytes + 1024 * 1024 - 1) / (1024 * 1024)) + " MiB";
}

}  // namespace

Memlock Memlock::Read() {
  Memlock memlock;
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    memlock.limit = limit.rlim_cur;
  }
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.compare(0, 6, "VmPin:") == 0) {
      memlock.pinned = std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
    } else if (line.compare(0, 7, "CapEff:") == 0) {
      const uint64_t capabilities = std::strtoull(line.c_str() + 7, nullptr, 16);
      if ((capabilities >> CAP_IPC_LOCK) & 1) memlock.limit = kUnlimited;
    }
  }
  return memlock;
}

Status Memlock::Check(uint64_t bytes) const {
  if (limit == kUnlimited || (pinned <= limit && bytes <= limit - pinned)) return Status::Ok();
  return {StatusCode::kPermissionDenied,
          "the memlock limit is " + Size(limit) + ", " + Size(pinned) + " are pinned and " +
              Size(bytes) +
              " more are needed; raise it: `ulimit -l unlimited`, LimitMEMLOCK=infinity in a "
              "systemd unit, `--ulimit memlock=-1` for a container, or a line `* - memlock "
              "unlimited` in /etc/security/limits.conf"};
}

}  // namespace verbs
}  // namespace rdmabatch
