// Which ports this program listens at, and how it does: firewalls open ranges.
#ifndef TF_RDMABATCH_CC_BASE_LISTEN_H_
#define TF_RDMABATCH_CC_BASE_LISTEN_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "tf_rdmabatch/cc/base/export.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/base/unique_fd.h"

namespace rdmabatch {

// From `first` to `last`, both included; 0 to 0 is any free port.
struct PortRange {
  uint16_t first = 0;
  uint16_t last = 0;

  bool any() const { return last == 0; }
  // "20000-20100", or "20000" alone; an empty text is any free port. kInvalidArgument quotes what
  // is none.
  RDMABATCH_EXPORT static Result<PortRange> Parse(const std::string& text);
  std::string ToString() const;
  // The error of who found none free.
  Status AllInUse() const;
};

// A listening, non-blocking stream socket at an IPv4 or IPv6 address. A port of 0 there stands for
// the first free one of `ports`. kAlreadyExists: the port, or every one of the range, is in use;
// kInvalidArgument: not an address of this host.
Result<UniqueFd> ListenAt(const sockaddr* address, socklen_t size, const PortRange& ports);

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_BASE_LISTEN_H_
