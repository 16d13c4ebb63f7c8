// Sockets of the tcp transport: non-blocking, close on exec, no delay.
#ifndef TF_RDMABATCH_CC_TRANSPORT_TCP_SOCKET_H_
#define TF_RDMABATCH_CC_TRANSPORT_TCP_SOCKET_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/base/unique_fd.h"
#include "tf_rdmabatch/cc/transport/tcp/wire.h"

namespace rdmabatch::tcp {

// 0 to 0: any port that is free.
struct PortRange {
  uint16_t first = 0;
  uint16_t last = 0;

  // "FIRST-LAST" or one port; kInvalidArgument says what to write.
  static Result<PortRange> Parse(const std::string& text);
};

// Listens at `ip` (numeric) and nowhere else. kResourceExhausted when every port of the range is in
// use.
Result<UniqueFd> ListenAt(const std::string& ip, PortRange ports);

// Sets family, port and address to where `socket` listens.
Status FillAddress(int socket, Offer* offer);

// Connects to the address of an offer. kDeadlineExceeded, or kUnavailable with the reason.
Result<UniqueFd> ConnectTo(const Offer& offer, Deadline deadline);

// The next connection of a listener; invalid when none waits.
Result<UniqueFd> AcceptFrom(int listener);

// Receives until `*have` is `size`, as far as it goes without a wait. False: not all yet.
// kUnavailable: the peer is gone.
Result<bool> ReceiveSome(int socket, char* bytes, size_t size, size_t* have);

// Sends a few bytes over a fresh connection, which takes them at once unless it is broken.
Status SendAll(int socket, const std::string& bytes);

// Waits until the socket is readable or writable; false at the deadline.
bool WaitFor(int socket, int16_t events, Deadline deadline);

// Whether both ends of a connection are at one address, so of one host.
bool IsLocal(int socket);

}  // namespace rdmabatch::tcp

#endif  // TF_RDMABATCH_CC_TRANSPORT_TCP_SOCKET_H_
