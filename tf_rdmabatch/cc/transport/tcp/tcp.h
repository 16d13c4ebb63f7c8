// The tcp transport: between any hosts that reach each other. One stream an endpoint; a chain is
// one gathered send, and one receive takes what many chains brought.
//
// When a chain completes (PollSend):
// - ending in kWriteImm: once the peer's progress thread has perceived the immediate, as in shared
//   memory. The engine gathers messages by it. An acknowledgement travels with whatever the peer
//   sends next, or by itself with its next poll.
// - with kRead: once all of it has arrived in local memory. The peer's progress thread reads.
// - with kWrite alone: once the kernel took it. Local memory may be used again; that the peer has
// it
//   is not said (nor does a device of iWARP).
//
// Who is dead: watchdog.h. Each connection listens at a port of its own (TransportOptions::ports)
// until it is accepted.
#ifndef TF_RDMABATCH_CC_TRANSPORT_TCP_TCP_H_
#define TF_RDMABATCH_CC_TRANSPORT_TCP_TCP_H_

#include "tf_rdmabatch/cc/transport/transport.h"

namespace rdmabatch {

extern const TransportFactory kTcpTransport;

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_TRANSPORT_TCP_TCP_H_
