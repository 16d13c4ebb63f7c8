// Watchdog: whether the host of a peer still answers.
#ifndef TF_RDMABATCH_CC_TRANSPORT_TCP_WATCHDOG_H_
#define TF_RDMABATCH_CC_TRANSPORT_TCP_WATCHDOG_H_

#include <cstdint>

namespace rdmabatch::tcp {

// Looks at a connection so often.
constexpr int64_t kLookMs = 400;

// The end of a peer's process ends its connections at once, which its kernel says. What is left is
// a host or a network that says nothing any more.
//
// So it is the kernel of the peer that must answer, by the acknowledgements of TCP: a process that
// has no processor, is stopped, or does not read is not dead. A connection on which nothing was
// sent gets a keep-alive, which the kernels send again when it is lost. It is dead when four looks
// in a row, 1.6 s, found bytes unacknowledged and no acknowledgement since the look before: within
// 2 s of the last answer.
//
// The socket options do not do. TCP_USER_TIMEOUT also ends a connection whose peer answers and only
// does not read; SO_KEEPALIVE says nothing while bytes are unacknowledged, and one lost probe would
// end an idle connection within two seconds. Where the peer does not read, the kernels probe its
// window at growing intervals; these are bounded to a second where the kernel can (Linux 6.15), and
// a host that vanishes then is noticed within 4 s here (the engine has its bootstrap connection).
//
// The progress thread's. A connection within one address is not watched: its kernel is this one.
class Watchdog {
 public:
  enum class Verdict : uint8_t { kAnswers, kIdle, kDead };

  explicit Watchdog(int socket);

  bool watches() const { return watches_; }
  // `since_ms`: since the look before.
  Verdict Look(uint32_t since_ms);

 private:
  const int socket_;
  const bool watches_;
  int silent_looks_ = 0;
};

}  // namespace rdmabatch::tcp

#endif  // TF_RDMABATCH_CC_TRANSPORT_TCP_WATCHDOG_H_
