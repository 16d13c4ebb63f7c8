#include "tf_rdmabatch/cc/base/listen.h"

#include <errno.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <system_error>

namespace rdmabatch {
namespace {

constexpr int kBacklog = 128;
constexpr uint32_t kLargestPort = 65535;

// 0 where `text` is not a port that one can ask for.
uint32_t ParsePort(std::string_view text) {
  const bool digits =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (text.empty() || text.size() > 5 || !digits) return 0;
  const int port = std::stoi(std::string(text));
  return port > static_cast<int>(kLargestPort) ? 0 : static_cast<uint32_t>(port);
}

in_port_t* PortOf(sockaddr_storage* address) {
  return address->ss_family == AF_INET6 ? &reinterpret_cast<sockaddr_in6*>(address)->sin6_port
                                        : &reinterpret_cast<sockaddr_in*>(address)->sin_port;
}

// Returns 0 or the error number.
int TryListen(const sockaddr_storage& address, socklen_t size, UniqueFd* fd) {
  fd->reset(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd->valid()) return errno;
  // A listener that comes back must not wait for old connections to time out, and one on [::] also
  // takes IPv4.
  const int on = 1;
  const int off = 0;
  (void)setsockopt(fd->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  (void)setsockopt(fd->get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  const bool listens = bind(fd->get(), reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
                       listen(fd->get(), kBacklog) == 0;
  return listens ? 0 : errno;
}

Status Failed(int error) {
  StatusCode code = StatusCode::kUnavailable;
  if (error == EADDRINUSE) code = StatusCode::kAlreadyExists;
  if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT) code = StatusCode::kInvalidArgument;
  if (error == EACCES || error == EPERM) code = StatusCode::kPermissionDenied;
  if (error == EMFILE || error == ENFILE) code = StatusCode::kResourceExhausted;
  return {code, std::generic_category().message(error)};
}

}  // namespace

Result<PortRange> PortRange::Parse(const std::string& text) {
  if (text.empty()) return PortRange();
  const std::string_view view = text;
  const size_t dash = std::min(view.find('-'), view.size());
  const uint32_t first = ParsePort(view.substr(0, dash));
  const uint32_t last = dash == view.size() ? first : ParsePort(view.substr(dash + 1));
  if (first == 0 || last < first) {
    return Status(StatusCode::kInvalidArgument,
                  "\"" + text +
                      "\" is not a range of ports: write it as in 20000-20100, from 1 "
                      "to 65535");
  }
  return PortRange{static_cast<uint16_t>(first), static_cast<uint16_t>(last)};
}

std::string PortRange::ToString() const {
  return std::to_string(first) + "-" + std::to_string(last);
}

Status PortRange::AllInUse() const {
  return {
      StatusCode::kAlreadyExists,
      "every port of the range " + ToString() +
          " is in use: give a wider one (TF_RDMABATCH_PORTS, or ports=), or end what uses them"};
}

Result<UniqueFd> ListenAt(const sockaddr* address, socklen_t size, const PortRange& ports) {
  sockaddr_storage at{};
  std::memcpy(&at, address, std::min(size_t{size}, sizeof(at)));
  in_port_t* const port = PortOf(&at);
  UniqueFd fd;
  if (*port != 0 || ports.any()) {
    const int error = TryListen(at, size, &fd);
    if (error != 0) return Failed(error);
    return fd;
  }
  for (uint32_t candidate = ports.first; candidate <= ports.last; ++candidate) {
    *port = htons(static_cast<uint16_t>(candidate));
    const int error = TryListen(at, size, &fd);
    if (error == 0) return fd;
    if (error != EADDRINUSE) return Failed(error);
  }
  return ports.AllInUse();
}

}  // namespace rdmabatch
