// SocketAddress: an IPv4 or IPv6 address with a port.
#ifndef TF_RDMABATCH_CC_TRANSPORT_VERBS_ADDRESS_H_
#define TF_RDMABATCH_CC_TRANSPORT_VERBS_ADDRESS_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/transport/verbs/wire.h"

namespace rdmabatch {
namespace verbs {

class SocketAddress {
 public:
  SocketAddress() = default;
  // `address` must be AF_INET or AF_INET6.
  explicit SocketAddress(const sockaddr& address);

  // A numeric address, port 0.
  static Result<SocketAddress> Parse(const std::string& ip);
  static SocketAddress FromOffer(const Offer& offer);
  // Sets family, address and port of `offer`.
  void FillOffer(Offer* offer) const;

  int family() const { return storage_.ss_family; }
  bool is_loopback() const;
  void set_port(uint16_t port);
  // Without the port.
  std::string ToString() const;
  // rdma_cm takes it without const, and does not change it.
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage_); }

 private:
  sockaddr_storage storage_{};
};

// Addresses of this host at which a peer could reach it (no loopback, no link-local ones), those of
// `preferred_family` first.
std::vector<SocketAddress> HostAddresses(int preferred_family);

}  // namespace verbs
}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_TRANSPORT_VERBS_ADDRESS_H_
