#include "tf_rdmabatch/cc/engine/bootstrap.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <system_error>
#include <utility>

#include "tf_rdmabatch/cc/engine/address.h"
#include "tf_rdmabatch/cc/engine/bytes.h"

namespace rdmabatch {
namespace {

constexpr uint32_t kFrameMagic = 0x46424d52;  // "RMBF" on the wire
constexpr int kPollSliceMs = 1000;

// A host that vanishes is noticed at the second keep-alive. The user timeout overrides the probe
// count, and is a little under two intervals so that rounding does not add a third.
constexpr int kKeepAliveIdleS = 1;
constexpr int kKeepAliveIntervalS = 1;
constexpr int kKeepAliveProbes = 2;
constexpr int kUserTimeoutMs = 1900;

std::string ErrorText(int error) { return std::generic_category().message(error); }

// Best effort: an option that a socket does not have leaves it usable.
void SetOption(int fd, int level, int option, int value) {
  (void)setsockopt(fd, level, option, &value, sizeof(value));
}

}  // namespace

BootstrapSocket::BootstrapSocket(UniqueFd fd) : fd_(std::move(fd)) {
  fcntl(fd_.get(), F_SETFL, fcntl(fd_.get(), F_GETFL) | O_NONBLOCK);
  fcntl(fd_.get(), F_SETFD, FD_CLOEXEC);
  SocketName peer = PeerName(fd_.get());
  peer_ = peer.text;
  local_ip_ = LocalName(fd_.get()).ip;
  if (!peer.is_inet) return;
  SetOption(fd_.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  // This host's kernel knows at once when a process on it ends, and can be too busy to answer
  // itself.
  if (peer.ip == local_ip_) return;
  SetOption(fd_.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd_.get(), IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleS);
  SetOption(fd_.get(), IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalS);
  SetOption(fd_.get(), IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
  SetOption(fd_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
}

Status BootstrapSocket::Gone(int error) const {
  return {StatusCode::kUnavailable, error == 0 ? "peer " + peer_ + " closed the connection"
                                               : "lost peer " + peer_ + ": " + ErrorText(error)};
}

Status BootstrapSocket::Wait(int16_t events, Deadline deadline) const {
  pollfd waiting{fd_.get(), events, 0};
  while (true) {
    int ready = poll(&waiting, 1, deadline.RemainingMs(kPollSliceMs));
    if (ready > 0) return Status::Ok();
    if (ready < 0 && errno != EINTR) return Gone(errno);
    if (deadline.expired()) {
      return {StatusCode::kDeadlineExceeded, "peer " + peer_ + " did not " +
                                                 (events == POLLIN ? "send" : "take") +
                                                 " a message before the deadline"};
    }
  }
}

Status BootstrapSocket::SendTwo(std::string_view first, std::string_view second,
                                Deadline deadline) {
  bool begun = tls_ != nullptr;  // which does not say
  while (!first.empty() || !second.empty()) {
    // sendmsg does not write through its buffers.
    iovec parts[2] = {{const_cast<char*>(first.data()), first.size()},
                      {const_cast<char*>(second.data()), second.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    ssize_t sent =
        tls_ == nullptr ? sendmsg(fd_.get(), &message, MSG_NOSIGNAL) : tls_->Send(parts, 2);
    if (sent >= 0) {
      begun = true;
      size_t of_first = std::min(first.size(), static_cast<size_t>(sent));
      first.remove_prefix(of_first);
      second.remove_prefix(static_cast<size_t>(sent) - of_first);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return Gone(errno);
    Status waited = Wait(POLLOUT, deadline);
    if (!waited.ok()) {
      if (begun) Shutdown();
      return waited;
    }
  }
  return Status::Ok();
}

Status BootstrapSocket::SendBytes(std::string_view bytes, Deadline deadline) {
  return SendTwo(bytes, {}, deadline);
}

Status BootstrapSocket::SendFrame(std::string_view payload, Deadline deadline) {
  if (payload.size() > std::numeric_limits<uint32_t>::max()) {
    return {StatusCode::kInvalidArgument, "a frame holds less than 4 GiB"};
  }
  ByteWriter header;
  header.U32(kFrameMagic);
  header.U32(static_cast<uint32_t>(payload.size()));
  return SendTwo(header.bytes(), payload, deadline);
}

Status BootstrapSocket::StartTls(TlsStream::Role role, const TlsStream::Key& key,
                                 Deadline deadline) {
  auto stream = TlsStream::Start(fd_.get(), role, key, deadline);
  if (!stream.ok()) {
    return {stream.status().code(), "peer " + peer_ + ": " + stream.status().message()};
  }
  tls_ = std::move(*stream);
  return Status::Ok();
}

ssize_t BootstrapSocket::Receive(char* bytes, size_t size) {
  if (tls_ == nullptr) return recv(fd_.get(), bytes, size, 0);
  const iovec whole{bytes, size};
  return tls_->Receive(&whole, 1);
}

Status BootstrapSocket::Fill(char* bytes, size_t size, size_t* have, Deadline deadline) {
  while (*have < size) {
    ssize_t got = Receive(bytes + *have, size - *have);
    if (got > 0) {
      *have += static_cast<size_t>(got);
    } else if (got == 0) {
      return Gone(0);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      RDMABATCH_RETURN_IF_ERROR(Wait(POLLIN, deadline));
    } else if (errno != EINTR) {
      return Gone(errno);
    }
  }
  return Status::Ok();
}

Status BootstrapSocket::ReceiveBytes(char* bytes, size_t size, Deadline deadline) {
  size_t have = 0;
  return Fill(bytes, size, &have, deadline);
}

Result<std::string> BootstrapSocket::ReceiveFrame(Deadline deadline, size_t max_bytes) {
  RDMABATCH_RETURN_IF_ERROR(Fill(header_, kHeaderBytes, &header_have_, deadline));
  ByteReader header({header_, kHeaderBytes});
  if (header.U32() != kFrameMagic) {
    return Status(StatusCode::kDataLoss, "peer " + peer_ + " sent bytes that are not a frame");
  }
  uint32_t size = header.U32();
  if (size > max_bytes) {
    return Status(StatusCode::kDataLoss, "peer " + peer_ + " sent a frame of " +
                                             std::to_string(size) + " bytes, over the limit of " +
                                             std::to_string(max_bytes));
  }
  payload_.resize(size);
  RDMABATCH_RETURN_IF_ERROR(Fill(payload_.data(), size, &payload_have_, deadline));
  header_have_ = 0;
  payload_have_ = 0;
  return std::exchange(payload_, {});
}

void BootstrapSocket::DiscardReceived() {
  char sink[512];
  // Bounded, since a peer may send faster than this reads.
  for (int i = 0; i < 16 && recv(fd_.get(), sink, sizeof(sink), MSG_DONTWAIT) > 0; ++i) {
  }
}

void BootstrapSocket::Shutdown() { shutdown(fd_.get(), SHUT_RDWR); }

}  // namespace rdmabatch
