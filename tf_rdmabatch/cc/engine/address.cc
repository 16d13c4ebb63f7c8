#include "tf_rdmabatch/cc/engine/address.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

namespace rdmabatch {
namespace {

bool IsPort(const std::string& text) {
  return !text.empty() && text.size() <= 5 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
         std::stoi(text) <= 65535;
}

SocketName Name(const sockaddr_storage& address, socklen_t size) {
  SocketName name;
  name.text = "local";
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if ((address.ss_family != AF_INET && address.ss_family != AF_INET6) ||
      getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof(host), port,
                  sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return name;
  }
  name.is_inet = true;
  name.ip = host;
  const std::string mapped = "::ffff:";
  if (name.ip.rfind(mapped, 0) == 0 && name.ip.find('.') != std::string::npos) {
    name.ip.erase(0, mapped.size());
  }
  bool brackets = name.ip.find(':') != std::string::npos;
  name.text = (brackets ? "[" + name.ip + "]" : name.ip) + ":" + port;
  return name;
}

}  // namespace

Result<HostPort> ParseAddress(const std::string& address) {
  const auto bad = [&](const char* why) {
    return Status(StatusCode::kInvalidArgument, "\"" + address + "\" is not an address: " + why);
  };
  size_t colon = address.rfind(':');
  if (colon == std::string::npos) return bad("write host:port");
  HostPort parts{address.substr(0, colon), address.substr(colon + 1)};
  if (!IsPort(parts.port)) return bad("the port is a number from 0 to 65535");
  std::string& host = parts.host;
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    if (host.find(':') == std::string::npos) return bad("brackets hold an IPv6 address");
  } else if (host.find_first_of(":[]") != std::string::npos) {
    return bad("write an IPv6 address in brackets, [::1]:5000");
  }
  if (host.find('\0') != std::string::npos) return bad("it holds a null character");
  return parts;
}

Result<AddressList> Resolve(const HostPort& address, bool to_listen) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  int error = getaddrinfo(address.host.empty() ? nullptr : address.host.c_str(),
                          address.port.c_str(), &hints, &list);
  if (error == 0) return AddressList(list);
  return Status(StatusCode::kInvalidArgument,
                "host \"" + address.host + "\" does not resolve: " + gai_strerror(error));
}

SocketName PeerName(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return Name(address, size);
}

SocketName LocalName(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return Name(address, size);
}

}  // namespace rdmabatch
