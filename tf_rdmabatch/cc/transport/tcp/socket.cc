#include "tf_rdmabatch/cc/transport/tcp/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

namespace rdmabatch::tcp {
namespace {

// Strangers must not fill the queue in which the peer waits.
constexpr int kBacklog = 64;
constexpr int kPollSliceMs = 1000;

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

bool ParsePort(const std::string& text, uint16_t* port) {
  if (text.empty() || text.size() > 5 ||
      !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    return false;
  }
  const int value = std::stoi(text);
  *port = static_cast<uint16_t>(value);
  return value >= 1 && value <= 65535;
}

}  // namespace

Result<PortRange> PortRange::Parse(const std::string& text) {
  const size_t dash = text.find('-');
  PortRange range;
  const bool parsed =
      ParsePort(text.substr(0, dash), &range.first) &&
      ParsePort(dash == std::string::npos ? text : text.substr(dash + 1), &range.last);
  if (!parsed || range.first > range.last) {
    return Status(StatusCode::kInvalidArgument,
                  "\"" + text + "\" is not a range of ports: write FIRST-LAST, such as 20000-20100");
  }
  return range;
}

Result<UniqueFd> ListenAt(const std::string& ip, PortRange ports) {
  auto address = ParseIp(ip);
  if (!address.ok()) return address.status();
  auto fd = NewSocket(address->any.sa_family);
  if (!fd.ok()) return fd.status();
  const int on = 1;
  (void)setsockopt(fd->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // Tasks of one host begin at different ports, and seldom meet.
  const uint32_t count = ports.last - ports.first + 1u;
  uint32_t start = 0;
  if (getrandom(&start, sizeof(start), 0) != sizeof(start)) start = 0;
  for (uint32_t i = 0; i < count; ++i) {
    SetPort(&*address, static_cast<uint16_t>(ports.first + (start % count + i) % count));
    // Two sockets may be bound to a port by SO_REUSEADDR; only one can listen.
    if (bind(fd->get(), &address->any, SizeOf(*address)) == 0 &&
        listen(fd->get(), kBacklog) == 0) {
      return fd;
    }
    if (errno != EADDRINUSE) return ErrnoStatus("listening at " + ip, errno);
    fd = NewSocket(address->any.sa_family);
    if (!fd.ok()) return fd.status();
    (void)setsockopt(fd->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  }
  return Status(StatusCode::kResourceExhausted,
                "every port from " + std::to_string(ports.first) + " to " +
                    std::to_string(ports.last) + " is in use at " + ip +
                    ": give TF_RDMABATCH_PORTS a larger range");
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
      return Status(StatusCode::kDeadlineExceeded,
                    "the peer's host does not answer at port " + std::to_string(offer.port) +
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

bool WaitFor(int socket, int16_t events, Deadline deadline) {
  pollfd waiting{socket, events, 0};
  while (poll(&waiting, 1, deadline.RemainingMs(kPollSliceMs)) <= 0) {
    if (deadline.expired()) return false;
  }
  return true;
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

}  // namespace rdmabatch::tcp
