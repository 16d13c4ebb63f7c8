// How bootstrap connections come about: listen, accept, connect.
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <system_error>

#include "tf_rdmabatch/cc/engine/address.h"
#include "tf_rdmabatch/cc/engine/bootstrap.h"

namespace rdmabatch {
namespace {

constexpr int kSliceMs = 50;  // how late a cancel may be noticed
constexpr int kFirstPauseMs = 1;
constexpr int kLastPauseMs = 50;
constexpr int kResolvePauseMs = 500;  // a name server should not be asked more often
constexpr double kAttemptS = 2;  // an address that does not answer must not use up the others' time

std::string ErrorText(int error) { return std::generic_category().message(error); }

bool Cancelled(const std::atomic<bool>* cancel) {
  return cancel != nullptr && cancel->load(std::memory_order_relaxed);
}

// Sleeps up to `ms`; false when the deadline passed or `cancel` was set.
bool Pause(int ms, Deadline deadline, const std::atomic<bool>* cancel) {
  Deadline end = Deadline::After(ms / 1e3);
  while (!end.expired()) {
    if (deadline.expired() || Cancelled(cancel)) return false;
    poll(nullptr, 0, std::min(end.RemainingMs(kSliceMs), deadline.RemainingMs(kSliceMs)));
  }
  return !deadline.expired() && !Cancelled(cancel);
}

UniqueFd NewSocket(const addrinfo& address) {
  return UniqueFd(socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Connects to one address. Returns 0 or the error number.
int TryConnect(int fd, const addrinfo& address, Deadline deadline,
               const std::atomic<bool>* cancel) {
  if (connect(fd, address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    Deadline attempt = Deadline::After(kAttemptS);
    pollfd waiting{fd, POLLOUT, 0};
    while (poll(&waiting, 1,
                std::min(attempt.RemainingMs(kSliceMs), deadline.RemainingMs(kSliceMs))) <= 0) {
      if (attempt.expired() || deadline.expired() || Cancelled(cancel)) return ETIMEDOUT;
    }
    int error = 0;
    socklen_t size = sizeof(error);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
    if (error != 0) return error;
  }
  // With nobody listening on a port of this host's ephemeral range, TCP can connect a socket to
  // itself.
  if (LocalName(fd).text == PeerName(fd).text) return ECONNREFUSED;
  return 0;
}

}  // namespace

Result<UniqueFd> ListenTcp(const std::string& address, const PortRange& ports) {
  Result<HostPort> parsed = ParseAddress(address);
  if (!parsed.ok()) return parsed.status();
  Result<AddressList> resolved = Resolve(*parsed, /*to_listen=*/true);
  if (!resolved.ok()) return resolved.status();
  Status last;
  for (const addrinfo* entry = resolved->get(); entry != nullptr; entry = entry->ai_next) {
    auto listener = ListenAt(entry->ai_addr, entry->ai_addrlen, ports);
    if (listener.ok()) return listener;
    last = listener.status();
    if (last.code() == StatusCode::kAlreadyExists) break;
  }
  return Status(last.code(), "cannot listen on " + address + ": " + last.message());
}

std::string BoundAddress(int fd) { return LocalName(fd).text; }

Result<BootstrapSocket> AcceptTcp(int listener, Deadline deadline) {
  while (true) {
    int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) return BootstrapSocket(UniqueFd(fd));
    int error = errno;
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
      return Status(StatusCode::kResourceExhausted,
                    "cannot accept on " + BoundAddress(listener) + ": " + ErrorText(error));
    }
    if (error == EBADF || error == EINVAL || error == ENOTSOCK || error == EOPNOTSUPP) {
      return Status(StatusCode::kFailedPrecondition, "not a listening socket: " + ErrorText(error));
    }
    // Anything else is the failure of one connection that had been on its way.
    if (error != EAGAIN && error != EWOULDBLOCK) continue;
    pollfd waiting{listener, POLLIN, 0};
    if (poll(&waiting, 1, deadline.RemainingMs(1000)) <= 0 && deadline.expired()) {
      return Status(StatusCode::kDeadlineExceeded,
                    "nobody connected to " + BoundAddress(listener) + " before the deadline");
    }
  }
}

Result<BootstrapSocket> ConnectTcp(const std::string& address, Deadline deadline,
                                   const std::atomic<bool>* cancel) {
  Result<HostPort> parsed = ParseAddress(address);
  if (!parsed.ok()) return parsed.status();
  if (parsed->host.empty() || std::stoi(parsed->port) == 0) {
    return Status(
        StatusCode::kInvalidArgument,
        "\"" + address + "\" is not an address to connect to: it needs a host and a port");
  }
  Status last(StatusCode::kDeadlineExceeded, "there was no time for an attempt");
  int pause_ms = kFirstPauseMs;
  do {
    Result<AddressList> resolved = Resolve(*parsed, /*to_listen=*/false);
    if (!resolved.ok()) {
      last = resolved.status();
      pause_ms = kResolvePauseMs;
      continue;
    }
    for (const addrinfo* entry = resolved->get(); entry != nullptr; entry = entry->ai_next) {
      UniqueFd fd = NewSocket(*entry);
      if (!fd.valid() && (errno == EMFILE || errno == ENFILE)) {
        return Status(StatusCode::kResourceExhausted,
                      "cannot connect to " + address + ": " + ErrorText(errno));
      }
      int error = fd.valid() ? TryConnect(fd.get(), *entry, deadline, cancel) : errno;
      if (error == 0) return BootstrapSocket(std::move(fd));
      last = Status(StatusCode::kDeadlineExceeded, ErrorText(error));
      if (deadline.expired() || Cancelled(cancel)) break;
    }
    pause_ms = std::min(pause_ms * 2, kLastPauseMs);
  } while (Pause(pause_ms, deadline, cancel));
  if (Cancelled(cancel)) {
    return Status(StatusCode::kCancelled, "connecting to " + address + " was cancelled");
  }
  // A name that never resolved is a wrong argument rather than a slow peer.
  return Status(last.code(), "no connection to " + address + ": " + last.message());
}

}  // namespace rdmabatch
