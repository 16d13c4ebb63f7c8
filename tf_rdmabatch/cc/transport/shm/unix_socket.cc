#include "tf_rdmabatch/cc/transport/shm/unix_socket.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <utility>

namespace rdmabatch::shm {
namespace {

constexpr int kBacklog = 16;

struct Address {
  sockaddr_un address{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

Address AbstractAddress(const Token& name) {
  static constexpr char kPrefix[] = "rdmabatch-";
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string path(1, '\0');
  path += kPrefix;
  for (uint8_t byte : name) {
    path += kDigits[byte >> 4];
    path += kDigits[byte & 15];
  }
  Address result;
  result.address.sun_family = AF_UNIX;
  std::memcpy(result.address.sun_path, path.data(), path.size());
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  return result;
}

Status Errno(StatusCode code, const char* what) {
  return {code, std::string(what) + ": " + std::strerror(errno)};
}

Status PeerGone() { return {StatusCode::kUnavailable, "the peer closed the connection or died"}; }

Result<UniqueFd> NewSocket() {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Errno(StatusCode::kResourceExhausted, "cannot create a Unix socket");
  return fd;
}

}  // namespace

Result<UniqueFd> ListenAt(const Token& name) {
  auto fd = NewSocket();
  if (!fd.ok()) return fd;
  const Address address = AbstractAddress(name);
  if (bind(fd->get(), address.get(), address.length) != 0 || listen(fd->get(), kBacklog) != 0) {
    return Errno(StatusCode::kUnavailable, "cannot listen on a Unix socket");
  }
  return fd;
}

Result<UniqueFd> ConnectTo(const Token& name) {
  auto fd = NewSocket();
  if (!fd.ok()) return fd;
  const Address address = AbstractAddress(name);
  if (connect(fd->get(), address.get(), address.length) != 0) {
    return Errno(StatusCode::kUnavailable,
                 "the peer's Unix socket cannot be reached (it stopped listening, or runs in "
                 "another network namespace)");
  }
  return fd;
}

Result<UniqueFd> AcceptFrom(int listener, Deadline deadline) {
  while (true) {
    UniqueFd fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid()) return fd;
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      return Errno(StatusCode::kResourceExhausted, "cannot accept a peer");
    }
    if (deadline.expired())
      return Status(StatusCode::kDeadlineExceeded, "no peer connected in time");
    WaitFor(listener, false, deadline, 1000);
  }
}

Result<bool> Send(int socket, const std::string& bytes, Span<const int> fds) {
  iovec data{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxMessageFds * sizeof(int))] = {};
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
  }
  while (sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS) return false;
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) return PeerGone();
    return Errno(StatusCode::kInternal, "cannot send to the peer");
  }
  return true;
}

Result<bool> Receive(int socket, Message* message) {
  char bytes[kMaxMessageBytes];
  iovec data{bytes, sizeof(bytes)};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxMessageFds * sizeof(int))];
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  ssize_t received;
  while ((received = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) < 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return false;
    return PeerGone();
  }
  *message = Message();
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      UniqueFd owned(fd);
      if (message->fd_count < kMaxMessageFds) message->fds[message->fd_count++] = std::move(owned);
    }
  }
  if (received == 0) return PeerGone();
  if ((header.msg_flags & MSG_CTRUNC) != 0) {
    return Status(StatusCode::kResourceExhausted,
                  "descriptors from the peer were lost: raise the limit of open files (ulimit -n)");
  }
  if ((header.msg_flags & MSG_TRUNC) != 0)
    return Status(StatusCode::kDataLoss, "a message from the peer is too long");
  message->bytes.assign(bytes, static_cast<size_t>(received));
  return true;
}

Result<Message> ReceiveBefore(int socket, Deadline deadline) {
  Message message;
  while (true) {
    auto received = Receive(socket, &message);
    if (!received.ok()) return received.status();
    if (*received) return message;
    if (deadline.expired())
      return Status(StatusCode::kDeadlineExceeded, "the peer did not answer in time");
    WaitFor(socket, false, deadline, 1000);
  }
}

void WaitFor(int socket, bool writable, Deadline deadline, int cap_ms) {
  pollfd entry{};
  entry.fd = socket;
  entry.events = POLLIN;
  if (writable) entry.events |= POLLOUT;
  poll(&entry, 1, deadline.RemainingMs(cap_ms));
}

}  // namespace rdmabatch::shm
