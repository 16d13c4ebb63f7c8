// "host:port": taken apart, resolved, and read back from sockets.
#ifndef TF_RDMABATCH_CC_ENGINE_ADDRESS_H_
#define TF_RDMABATCH_CC_ENGINE_ADDRESS_H_

#include <netdb.h>

#include <memory>
#include <string>

#include "tf_rdmabatch/cc/base/status.h"

namespace rdmabatch {

struct HostPort {
  std::string host;  // without brackets; may be empty
  std::string port;  // 0 to 65535
};

// kInvalidArgument quotes what does not parse.
Result<HostPort> ParseAddress(const std::string& address);

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, FreeAddresses>;

// Stream addresses of `address`, never an empty list; kInvalidArgument names a host that does not
// resolve. Blocks as long as the system's resolver does, on a numeric host not at all.
Result<AddressList> Resolve(const HostPort& address, bool to_listen);

struct SocketName {
  std::string
      ip;  // numeric, IPv4 mapped into IPv6 written as IPv4; empty when not an internet socket
  std::string text;  // "ip:port", "[ip]:port", or "local"
  bool is_inet = false;
};

SocketName PeerName(int fd);
SocketName LocalName(int fd);

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_ADDRESS_H_
