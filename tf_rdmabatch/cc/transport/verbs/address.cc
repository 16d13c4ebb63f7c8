#include "tf_rdmabatch/cc/transport/verbs/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace rdmabatch {
namespace verbs {
namespace {

const sockaddr_in& V4(const sockaddr_storage& storage) {
  return reinterpret_cast<const sockaddr_in&>(storage);
}
const sockaddr_in6& V6(const sockaddr_storage& storage) {
  return reinterpret_cast<const sockaddr_in6&>(storage);
}
sockaddr_in& V4(sockaddr_storage& storage) { return reinterpret_cast<sockaddr_in&>(storage); }
sockaddr_in6& V6(sockaddr_storage& storage) { return reinterpret_cast<sockaddr_in6&>(storage); }

}  // namespace

SocketAddress::SocketAddress(const sockaddr& address) {
  const size_t size = address.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&storage_, &address, size);
}

Result<SocketAddress> SocketAddress::Parse(const std::string& ip) {
  SocketAddress address;
  if (inet_pton(AF_INET, ip.c_str(), &V4(address.storage_).sin_addr) == 1) {
    address.storage_.ss_family = AF_INET;
    return address;
  }
  if (inet_pton(AF_INET6, ip.c_str(), &V6(address.storage_).sin6_addr) == 1) {
    address.storage_.ss_family = AF_INET6;
    return address;
  }
  return Status(StatusCode::kInvalidArgument, "not a numeric IP address: '" + ip + "'");
}

SocketAddress SocketAddress::FromOffer(const Offer& offer) {
  SocketAddress address;
  if (offer.family == 4) {
    sockaddr_in& v4 = V4(address.storage_);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(offer.port);
    std::memcpy(&v4.sin_addr, offer.address.data(), sizeof(v4.sin_addr));
  } else {
    sockaddr_in6& v6 = V6(address.storage_);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(offer.port);
    std::memcpy(&v6.sin6_addr, offer.address.data(), sizeof(v6.sin6_addr));
  }
  return address;
}

void SocketAddress::FillOffer(Offer* offer) const {
  offer->address = {};
  if (family() == AF_INET) {
    offer->family = 4;
    offer->port = ntohs(V4(storage_).sin_port);
    std::memcpy(offer->address.data(), &V4(storage_).sin_addr, sizeof(in_addr));
  } else {
    offer->family = 6;
    offer->port = ntohs(V6(storage_).sin6_port);
    std::memcpy(offer->address.data(), &V6(storage_).sin6_addr, sizeof(in6_addr));
  }
}

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET) return (ntohl(V4(storage_).sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
  return IN6_IS_ADDR_LOOPBACK(&V6(storage_).sin6_addr) != 0;
}

void SocketAddress::set_port(uint16_t port) {
  (family() == AF_INET ? V4(storage_).sin_port : V6(storage_).sin6_port) = htons(port);
}

std::string SocketAddress::ToString() const {
  char text[INET6_ADDRSTRLEN] = "?";
  if (family() == AF_INET) {
    inet_ntop(AF_INET, &V4(storage_).sin_addr, text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, &V6(storage_).sin6_addr, text, sizeof(text));
  }
  return text;
}

std::vector<SocketAddress> HostAddresses(int preferred_family) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<SocketAddress> addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (family == AF_INET6) {
      // A link-local address means nothing to a peer without the number of its own interface.
      const auto& v6 = reinterpret_cast<const sockaddr_in6&>(*entry->ifa_addr);
      if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) continue;
    }
    const SocketAddress address(*entry->ifa_addr);
    if (!address.is_loopback()) addresses.push_back(address);
  }
  std::stable_partition(
      addresses.begin(), addresses.end(),
      [preferred_family](const SocketAddress& a) { return a.family() == preferred_family; });
  return addresses;
}

}  // namespace verbs
}  // namespace rdmabatch
