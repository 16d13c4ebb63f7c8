// Unix sockets of the abstract namespace that carry whole messages and file descriptors
// (SOCK_SEQPACKET). They have no name in a file system, so a killed process leaves nothing behind.
// All sockets are non-blocking and close on exec.
#ifndef TF_RDMABATCH_CC_TRANSPORT_SHM_UNIX_SOCKET_H_
#define TF_RDMABATCH_CC_TRANSPORT_SHM_UNIX_SOCKET_H_

#include <array>
#include <cstddef>
#include <string>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/span.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/base/unique_fd.h"
#include "tf_rdmabatch/cc/transport/shm/layout.h"

namespace rdmabatch::shm {

constexpr size_t kMaxMessageBytes = 128;
constexpr size_t kMaxMessageFds = 2;

struct Message {
  std::string bytes;
  std::array<UniqueFd, kMaxMessageFds> fds;
  size_t fd_count = 0;
};

Result<UniqueFd> ListenAt(const Token& name);
// kUnavailable when nobody listens at `name` in this network namespace.
Result<UniqueFd> ConnectTo(const Token& name);
// kDeadlineExceeded when nobody connected.
Result<UniqueFd> AcceptFrom(int listener, Deadline deadline);

// Sends a message. False: the socket is full. kUnavailable: the peer is gone.
Result<bool> Send(int socket, const std::string& bytes, Span<const int> fds);

// Receives a message that waits. False: none does. kUnavailable: the peer is gone. kDataLoss: it is
// too long. kResourceExhausted: descriptors were lost because this process has too many open.
Result<bool> Receive(int socket, Message* message);

// The same, waiting for one.
Result<Message> ReceiveBefore(int socket, Deadline deadline);

// Waits until the socket is readable (or writable too), at most `cap_ms` and not past the deadline.
void WaitFor(int socket, bool writable, Deadline deadline, int cap_ms);

}  // namespace rdmabatch::shm

#endif  // TF_RDMABATCH_CC_TRANSPORT_SHM_UNIX_SOCKET_H_
