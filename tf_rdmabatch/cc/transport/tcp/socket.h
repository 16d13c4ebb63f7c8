// Sockets of the tcp transport: non-blocking, close on exec, no delay.
#ifndef TF_RDMABATCH_CC_TRANSPORT_TCP_SOCKET_H_
#define TF_RDMABATCH_CC_TRANSPORT_TCP_SOCKET_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/listen.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/base/unique_fd.h"
#include "tf_rdmabatch/cc/transport/tcp/wire.h"

namespace rdmabatch::tcp {

// Listens at `ip` (numeric) and nowhere else. Errors are those of the other ListenAt.
Result<UniqueFd> ListenAt(const std::string& ip, const PortRange& ports);

// Sets family, port and address to where `socket` listens.
Status FillAddress(int socket, Offer* offer);

// Connects to the address of an offer. kUnavailable with the reason, also where nothing answers
// until the deadline: the kernel of a peer that has made an offer does.
Result<UniqueFd> ConnectTo(const Offer& offer, Deadline deadline);

// The next connection of a listener; invalid when none waits.
Result<UniqueFd> AcceptFrom(int listener);

// Receives until `*have` is `size`, as far as it goes without a wait. False: not all yet.
// kUnavailable: the peer is gone.
Result<bool> ReceiveSome(int socket, char* bytes, size_t size, size_t* have);

// Sends a few bytes over a fresh connection, which takes them at once unless it is broken.
Status SendAll(int socket, const std::string& bytes);

// Whether both ends of a connection are at one address, so of one host.
bool IsLocal(int socket);

// For a connection within one address: the oldest congestion control, which every kernel has. There
// is nothing to control, and one that paces by a timer (bbr) costs as much as the copies.
void UsePlainCongestionControl(int socket);

}  // namespace rdmabatch::tcp

#endif  // TF_RDMABATCH_CC_TRANSPORT_TCP_SOCKET_H_
