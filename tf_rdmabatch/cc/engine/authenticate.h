// Mutual challenge and response over a fresh bootstrap connection: each side proves that it knows
// the job's token, which is never sent.
//
//   client -> server  "RDMB", version u16, nonce[32]
//   server -> client  "RDMB", version u16, nonce[32]
//   client -> server  HMAC-SHA256(token, client label, version, both nonces)
//   server -> client  verdict u8 and, if accepted, HMAC-SHA256(token, server label, version, both
//   nonces)
//
// The upper bit of the version says that TLS follows, at once, with a key that is a third
// HMAC-SHA256. Both sides want it or neither does: what is not is an error of both, never a
// connection without it.
//
// The first six bytes are the same in every version, so that two versions can name each other. The
// labels differ, so that no proof can be reflected. The server says nothing until it was addressed
// as this program, and proves nothing to a client that has not. Nothing is allocated for a peer
// before it has proven.
//
// What this gives: only holders of the token get a connection. A token that can be guessed can be
// found by trying from one recorded handshake: use a long random one.
#ifndef TF_RDMABATCH_CC_ENGINE_AUTHENTICATE_H_
#define TF_RDMABATCH_CC_ENGINE_AUTHENTICATE_H_

#include <cstdint>
#include <string>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/engine/bootstrap.h"

namespace rdmabatch {

inline constexpr uint16_t kProtocolVersion = 1;
inline constexpr uint16_t kTlsFollows = 0x8000;

// Both block until they know or `deadline` passes, and name the peer in what they return:
//   kInvalidArgument     `token` is empty or longer than 4 KiB; nothing was sent
//   kPermissionDenied    the other side has another token; both sides get this
//   kFailedPrecondition  the other side speaks another version of the protocol, or does not want
//                        TLS as this one does; both sides get this
//   kDataLoss            the other side is not this program
//   kUnavailable, kDeadlineExceeded
// After any error the connection is good for nothing but closing; with `tls` it is encrypted after
// success.
Status AuthenticateServer(BootstrapSocket& socket, const std::string& token, Deadline deadline,
                          bool tls = false);
Status AuthenticateClient(BootstrapSocket& socket, const std::string& token, Deadline deadline,
                          bool tls = false);

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_AUTHENTICATE_H_
