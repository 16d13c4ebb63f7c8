// Link: the socket of an endpoint, why it is broken, and what the progress thread waits for on it.
#ifndef TF_RDMABATCH_CC_TRANSPORT_TCP_LINK_H_
#define TF_RDMABATCH_CC_TRANSPORT_TCP_LINK_H_

#include <atomic>
#include <memory>
#include <utility>

#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/base/tls_stream.h"
#include "tf_rdmabatch/cc/base/unique_fd.h"
#include "tf_rdmabatch/cc/transport/transport.h"

namespace rdmabatch::tcp {

// Why an endpoint is broken; one of the constants below.
struct Failure {
  StatusCode code;
  const char* message;
};

extern const Failure kClosedHere;
extern const Failure kPeerGone;
extern const Failure kCutOff;
extern const Failure kSilent;
extern const Failure kBadFrame;
extern const Failure kForged;
extern const Failure kOutOfReach;
extern const Failure kTooManyReads;
extern const Failure kRegionGone;

// A connection, and what encrypts it; null: nothing does.
struct Stream {
  UniqueFd socket;
  std::unique_ptr<TlsStream> tls;
};

// Thread-safe.
class Link {
 public:
  // `epoll` outlives the link.
  Link(Stream stream, int epoll) : stream_(std::move(stream)), epoll_(epoll) {}

  int socket() const { return stream_.socket.get(); }
  TlsStream* tls() const { return stream_.tls.get(); }

  // The first failure stays. Ends both directions, which the peer and a sleeping progress thread
  // notice; what has arrived can still be received.
  void Break(const Failure& failure);
  const Failure* failure() const { return failure_.load(std::memory_order_acquire); }
  Status FailureStatus() const;
  // By this side: from now on nothing is received and memory is left alone.
  void Close() {
    closed_.store(true, std::memory_order_seq_cst);
    Break(kClosedHere);
  }
  bool closed() const { return closed_.load(std::memory_order_seq_cst); }

  // `tag` comes back as the event's data.
  Status Watch(void* tag);
  // Whether room in the socket is an event too. Whoever sends.
  void WatchForRoom(bool want);
  void Unwatch();

 private:
  const Stream stream_;
  const int epoll_;
  void* tag_ = nullptr;
  std::atomic<const Failure*> failure_{nullptr};
  std::atomic<bool> closed_{false};
};

}  // namespace rdmabatch::tcp

#endif  // TF_RDMABATCH_CC_TRANSPORT_TCP_LINK_H_
