// Whatever a peer may send over the bootstrap connection before and after it has proven anything.
// The first byte of the input chooses who listens; the rest is what it hears, after which the peer
// hangs up.
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tf_rdmabatch/cc/engine/authenticate.h"
#include "tf_rdmabatch/cc/engine/bootstrap.h"

namespace {

using rdmabatch::BootstrapSocket;
using rdmabatch::Deadline;
using rdmabatch::Result;
using rdmabatch::Status;
using rdmabatch::StatusCode;
using rdmabatch::UniqueFd;

constexpr size_t kMaxFrame = 4096;

void Expect(bool condition) {
  if (!condition) __builtin_trap();
}

// Nothing here waits: all bytes are there before the first is read.
Deadline Soon() { return Deadline::After(5); }

bool IsRefusal(const Status& status) {
  return status.code() == StatusCode::kDataLoss || status.code() == StatusCode::kUnavailable ||
         status.code() == StatusCode::kPermissionDenied ||
         status.code() == StatusCode::kFailedPrecondition;
}

void ReceiveFrames(BootstrapSocket& socket) {
  while (true) {
    Result<std::string> frame = socket.ReceiveFrame(Soon(), kMaxFrame);
    if (!frame.ok()) {
      Expect(IsRefusal(frame.status()) && !frame.status().message().empty());
      return;
    }
    Expect(frame->size() <= kMaxFrame);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // What fits the buffer of a socket pair, so that sending does not wait.
  if (size == 0 || size > 16384) return 0;
  int ends[2];
  Expect(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  BootstrapSocket socket{UniqueFd(ends[0])};
  UniqueFd peer(ends[1]);
  Expect(send(peer.get(), data + 1, size - 1, MSG_NOSIGNAL) == static_cast<ssize_t>(size - 1));
  shutdown(peer.get(), SHUT_WR);
  switch (data[0] % 3) {
    case 0: {
      // No input can hold the proof for a nonce that was drawn after it.
      Status status = AuthenticateServer(socket, "token", Soon());
      Expect(IsRefusal(status) && !status.message().empty());
      break;
    }
    case 1: {
      Status status = AuthenticateClient(socket, "token", Soon());
      Expect(IsRefusal(status) && !status.message().empty());
      break;
    }
    default:
      ReceiveFrames(socket);
  }
  return 0;
}
