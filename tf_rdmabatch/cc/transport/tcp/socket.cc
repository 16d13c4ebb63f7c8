#include "tf_rdmabatch/cc/transport/tcp/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "tf_rdmabatch/cc/base/wait_for.h"

namespace rdmabatch::tcp {
namespace {

Status ErrnoStatus(const std::string& what, int error) {
  const bool exhausted = error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
  return {exhausted ? StatusCode::kResourceExhausted : StatusCode::kUnavailable,
          what + ": " + std::generic_category().message(error)};
}

union SocketAddress {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};

socklen_t SizeOf(const SocketAddress& address) {
  return address.any.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

void SetPort(SocketAddress* address, uint16_t port) {
  (address->any.sa_family == AF_INET ? address->v4.sin_port : address->v6.sin6_port) = htons(port);
}

Result<SocketAddress> ParseIp(const std::string& ip) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(ip.c_str(), nullptr, &hints, &list) != 0) {
    return Status(StatusCode::kInvalidArgument, "\"" + ip + "\" is not a numeric IP address");
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  SocketAddress address{};
  std::memcpy(&address, list->ai_addr, std::min<size_t>(list->ai_addrlen, sizeof(address)));
  return address;
}

SocketAddress AddressOf(const Offer& offer) {
  SocketAddress address{};
  if (offer.family == 4) {
    address.v4.sin_family = AF_INET;
    std::memcpy(&address.v4.sin_addr, offer.address.data(), sizeof(in_addr));
  } else {
    address.v6.sin6_family = AF_INET6;
    std::memcpy(&address.v6.sin6_addr, offer.address.data(), sizeof(in6_addr));
  }
  SetPort(&address, static_cast<uint16_t>(offer.port));
  return address;
}

Result<UniqueFd> NewSocket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!fd.valid()) return ErrnoStatus("creating a socket", errno);
  return fd;
}

void SetNoDelay(int socket) {
  const int on = 1;
  (void)setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace

Result<UniqueFd> ListenAt(const std::string& ip, const PortRange& ports) {
  auto address = ParseIp(ip);
  if (!address.ok()) return address.status();
  return rdmabatch::ListenAt(&address->any, SizeOf(*address), ports);
}

Status FillAddress(int socket, Offer* offer) {
  SocketAddress address{};
  socklen_t size = sizeof(address);
  if (getsockname(socket, &address.any, &size) != 0) return ErrnoStatus("getsockname", errno);
  if (address.any.sa_family == AF_INET) {
    offer->family = 4;
    offer->port = ntohs(address.v4.sin_port);
    std::memcpy(offer->address.data(), &address.v4.sin_addr, sizeof(in_addr));
  } else {
    offer->family = 6;
    offer->port = ntohs(address.v6.sin6_port);
    std::memcpy(offer->address.data(), &address.v6.sin6_addr, sizeof(in6_addr));
  }
  return Status::Ok();
}

Result<UniqueFd> ConnectTo(const Offer& offer, Deadline deadline) {
  const SocketAddress address = AddressOf(offer);
  auto fd = NewSocket(address.any.sa_family);
  if (!fd.ok()) return fd.status();
  SetNoDelay(fd->get());
  int error = connect(fd->get(), &address.any, SizeOf(address)) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    if (!WaitFor(fd->get(), POLLOUT, deadline)) {
      return Status(StatusCode::kUnavailable, "the peer's host does not answer at port " +
                                                  std::to_string(offer.port) +
                                                  " (a firewall? see TF_RDMABATCH_PORTS)");
    }
    socklen_t size = sizeof(error);
    if (getsockopt(fd->get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  }
  if (error != 0) return ErrnoStatus("connecting to port " + std::to_string(offer.port), error);
  return fd;
}

Result<UniqueFd> AcceptFrom(int listener) {
  UniqueFd fd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.valid()) {
    const bool nobody = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ||
                        errno == ECONNABORTED || errno == EPROTO;
    if (!nobody) return ErrnoStatus("accepting a connection", errno);
    return fd;
  }
  SetNoDelay(fd.get());
  return fd;
}

Result<bool> ReceiveSome(int socket, char* bytes, size_t size, size_t* have) {
  while (*have < size) {
    const ssize_t n = recv(socket, bytes + *have, size - *have, MSG_DONTWAIT);
    if (n > 0) {
      *have += static_cast<size_t>(n);
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return false;
    } else if (n == 0 || errno != EINTR) {
      return Status(StatusCode::kUnavailable, "the peer closed the connection");
    }
  }
  return true;
}

Status SendAll(int socket, const std::string& bytes) {
  const ssize_t n = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n == static_cast<ssize_t>(bytes.size())) return Status::Ok();
  return ErrnoStatus("greeting the peer", n < 0 ? errno : EPIPE);
}

bool IsLocal(int socket) {
  SocketAddress here{};
  SocketAddress there{};
  socklen_t size = sizeof(here);
  if (getsockname(socket, &here.any, &size) != 0) return false;
  size = sizeof(there);
  if (getpeername(socket, &there.any, &size) != 0) return false;
  SetPort(&here, 0);
  SetPort(&there, 0);
  return std::memcmp(&here, &there, SizeOf(here)) == 0;
}

void UsePlainCongestionControl(int socket) {
  constexpr char kName[] = "reno";
  // Where it may not be chosen, all works as well.
  (void)setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, kName, sizeof(kName) - 1);
}

}  // namespace rdmabatch::tcp
