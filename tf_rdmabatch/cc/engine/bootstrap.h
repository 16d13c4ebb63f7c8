// The bootstrap connection: TCP, encrypted or plain, over which two engines authenticate and agree
// before any device is connected, and which then stays open: its end is how the death of a peer is
// noticed.
//
// Control path only. Every wait ends at its deadline, except that resolving a name takes what the
// system's resolver takes. Addresses are "host:port", the host a name, an IPv4 address or an IPv6
// address in brackets.
#ifndef TF_RDMABATCH_CC_ENGINE_BOOTSTRAP_H_
#define TF_RDMABATCH_CC_ENGINE_BOOTSTRAP_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/listen.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/base/tls_stream.h"
#include "tf_rdmabatch/cc/base/unique_fd.h"

namespace rdmabatch {

// One connection, owned. One thread may send while another receives; Shutdown may be called by any.
//
// kUnavailable from any call means that the peer is gone (it closed, died, or did not answer
// keep-alives for 2 s); messages name the peer.
class BootstrapSocket {
 public:
  // Takes over a connected stream socket: makes it non-blocking, and on TCP sets no-delay and
  // keep-alives.
  explicit BootstrapSocket(UniqueFd fd);
  BootstrapSocket(BootstrapSocket&&) = default;
  BootstrapSocket& operator=(BootstrapSocket&&) = default;

  // Sends one frame. Once a deadline cut a frame short the connection is of no use any more and is
  // shut down.
  Status SendFrame(std::string_view payload, Deadline deadline);

  // The next frame. kDeadlineExceeded keeps what has come so far, and the next call goes on from
  // there, so that a deadline that has passed already makes this a non-blocking call. kDataLoss:
  // not a frame, or longer than `max_bytes`, of which nothing was allocated.
  Result<std::string> ReceiveFrame(Deadline deadline, size_t max_bytes);

  // Bytes without a frame, for the handshake. ReceiveBytes gets exactly `size`.
  Status SendBytes(std::string_view bytes, Deadline deadline);
  Status ReceiveBytes(char* bytes, size_t size, Deadline deadline);

  // Everything after it is encrypted, with a key that the peer has too. Errors name the peer; then
  // the connection is good for nothing but closing.
  Status StartTls(TlsStream::Role role, const TlsStream::Key& key, Deadline deadline);

  // Throws away what has arrived and was not read, without waiting. Closing a socket that holds
  // unread bytes resets the connection, and the peer would lose the answer that was just sent.
  void DiscardReceived();

  // Ends both directions at once: the peer and any thread waiting here notice. The descriptor stays
  // open.
  void Shutdown();

  int fd() const { return fd_.get(); }
  const std::string& peer() const { return peer_; }  // "ip:port"
  const std::string& local_ip() const {
    return local_ip_;
  }  // numeric, at which the peer reached this host

 private:
  static constexpr size_t kHeaderBytes = 8;

  // Receives until `*have` is `size`.
  Status Fill(char* bytes, size_t size, size_t* have, Deadline deadline);
  Status SendTwo(std::string_view first, std::string_view second, Deadline deadline);
  Status Wait(int16_t events, Deadline deadline) const;
  Status Gone(int error) const;
  ssize_t Receive(char* bytes, size_t size);

  UniqueFd fd_;
  std::unique_ptr<TlsStream> tls_;  // null: plain
  std::string peer_;
  std::string local_ip_;
  // The frame that is arriving.
  char header_[kHeaderBytes] = {};
  size_t header_have_ = 0;
  std::string payload_;
  size_t payload_have_ = 0;
};

// A listening, non-blocking socket. Port 0 takes a free one of `ports`, an empty host all
// addresses. kAlreadyExists when the port, or the whole range, is in use, kInvalidArgument when the
// address is not one of this host or does not parse.
Result<UniqueFd> ListenTcp(const std::string& address, const PortRange& ports = PortRange());

// "ip:port" to which a socket is bound.
std::string BoundAddress(int fd);

// The next connection of a listener. kDeadlineExceeded when there is none; kResourceExhausted when
// this process is out of descriptors (the connection stays queued, so wait a little before the next
// call).
Result<BootstrapSocket> AcceptTcp(int listener, Deadline deadline);

// Connects, and tries again whatever the failure until the deadline, since peers start in any
// order: even their names may appear late. `cancel`, if not null, ends the wait within 50 ms of
// becoming true (kCancelled).
Result<BootstrapSocket> ConnectTcp(const std::string& address, Deadline deadline,
                                   const std::atomic<bool>* cancel = nullptr);

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_BOOTSTRAP_H_
