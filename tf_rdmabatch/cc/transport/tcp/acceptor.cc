#include "tf_rdmabatch/cc/transport/tcp/acceptor.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <sys/random.h>

#include <algorithm>
#include <string_view>

#include "tf_rdmabatch/cc/base/log.h"
#include "tf_rdmabatch/cc/base/wait_for.h"
#include "tf_rdmabatch/cc/transport/tcp/tcp_endpoint.h"

namespace rdmabatch::tcp {
namespace {

constexpr size_t kStrangers = 16;  // connections that have not proven themselves
constexpr double kGreetingSeconds = 1;
constexpr int kPollSliceMs = 1000;

template <typename Bytes>
bool FillRandom(Bytes* secret) {
  return getrandom(secret->data(), secret->size(), 0) == static_cast<ssize_t>(secret->size());
}

Greeting GreetingOf(const Secret& secret, const EndpointOptions& options) {
  Greeting greeting;
  greeting.secret = secret;
  greeting.queue_depth = options.send_queue_depth;
  return greeting;
}

// Encrypts, where the offer says so, with a key that only fits these two greetings.
Result<Stream> StreamOver(UniqueFd socket, const Offer& offer, TlsStream::Role role,
                          const Greeting& connecting, const Greeting& listening,
                          Deadline deadline) {
  Stream stream{std::move(socket), nullptr};
  if (offer.tls == 0) return stream;
  const std::string said = Pack(connecting) + Pack(listening);
  TlsStream::Key key;
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), offer.tls_key.data(), static_cast<int>(offer.tls_key.size()),
           reinterpret_cast<const unsigned char*>(said.data()), said.size(), key.data(),
           &size) == nullptr ||
      size != key.size()) {
    return Status(StatusCode::kInternal, "libcrypto cannot compute HMAC-SHA256");
  }
  auto tls = TlsStream::Start(stream.socket.get(), role, key, deadline);
  if (!tls.ok()) return tls.status();
  stream.tls = std::move(*tls);
  return stream;
}

// A greeting that is arriving.
struct Arriving {
  char bytes[sizeof(Greeting)];
  size_t have = 0;

  // False: not all of it yet. kPermissionDenied: it is no greeting with that secret.
  Result<bool> Receive(int socket, const Secret& secret, Greeting* greeting) {
    auto whole = ReceiveSome(socket, bytes, sizeof(bytes), &have);
    if (!whole.ok() || !*whole) return whole;
    if (!Unpack(std::string_view(bytes, sizeof(bytes)), greeting) ||
        CRYPTO_memcmp(greeting->secret.data(), secret.data(), secret.size()) != 0) {
      return Status(StatusCode::kPermissionDenied, "a greeting without the secret of the offer");
    }
    return true;
  }
};

struct Stranger {
  UniqueFd socket;
  Arriving arriving;
  Deadline until = Deadline::After(0);
};

// Those that connected, the oldest first.
class Strangers {
 public:
  void Add(UniqueFd socket) {
    if (count_ == kStrangers) Drop(0);
    Stranger& stranger = strangers_[count_++];
    stranger.socket = std::move(socket);
    stranger.arriving.have = 0;
    stranger.until = Deadline::After(kGreetingSeconds);
  }

  // Waits for any of them, or the listener; until the first of them has had its time.
  void Wait(int listener, Deadline deadline) const {
    pollfd fds[kStrangers + 1] = {{listener, POLLIN, 0}};
    for (size_t i = 0; i < count_; ++i) fds[i + 1] = {strangers_[i].socket.get(), POLLIN, 0};
    int patience = deadline.RemainingMs(kPollSliceMs);
    if (count_ != 0) patience = std::min(patience, strangers_[0].until.RemainingMs(kPollSliceMs));
    (void)poll(fds, count_ + 1, patience);
  }

  // The one that has proven itself; invalid when none has yet.
  UniqueFd Examine(const Secret& secret, Greeting* greeting) {
    for (size_t i = 0; i < count_;) {
      auto proven = strangers_[i].arriving.Receive(strangers_[i].socket.get(), secret, greeting);
      if (proven.ok() && *proven) return std::move(strangers_[i].socket);
      if (!proven.ok() || strangers_[i].until.expired()) {
        Drop(i);
      } else {
        ++i;
      }
    }
    return {};
  }

 private:
  void Drop(size_t index) {
    Log(LogLevel::kWarning, "tcp: refused a connection that did not show the secret of the offer");
    std::move(&strangers_[index + 1], &strangers_[count_], &strangers_[index]);
    strangers_[--count_].socket.reset();
  }

  Stranger strangers_[kStrangers];
  size_t count_ = 0;
};

}  // namespace

Result<std::unique_ptr<Acceptor>> TcpAcceptor::Create(std::shared_ptr<PollSet> poll_set,
                                                      const std::string& local_ip,
                                                      const TransportOptions& options) {
  auto listener = ListenAt(local_ip, options.ports);
  if (!listener.ok()) return listener.status();
  Offer offer;
  RDMABATCH_RETURN_IF_ERROR(FillAddress(listener->get(), &offer));
  offer.tls = options.tls ? 1 : 0;
  if (!FillRandom(&offer.connect_secret) || !FillRandom(&offer.accept_secret) ||
      !FillRandom(&offer.tls_key)) {
    return Status(StatusCode::kInternal, "getrandom failed");
  }
  return std::unique_ptr<Acceptor>(
      new TcpAcceptor(std::move(poll_set), std::move(*listener), offer));
}

Result<std::unique_ptr<Endpoint>> TcpAcceptor::Accept(const EndpointOptions& options,
                                                      Deadline deadline) {
  if (!listener_.valid())
    return Status(StatusCode::kFailedPrecondition, "an offer is good for one Accept");
  RDMABATCH_RETURN_IF_ERROR(CheckOptions(options));
  const UniqueFd listener = std::move(listener_);
  Strangers strangers;
  Greeting greeting;
  do {
    strangers.Wait(listener.get(), deadline);
    auto next = AcceptFrom(listener.get());
    if (!next.ok()) return next.status();
    if (next->valid()) strangers.Add(std::move(*next));
    UniqueFd socket = strangers.Examine(offer_.connect_secret, &greeting);
    if (!socket.valid()) continue;
    const Greeting own = GreetingOf(offer_.accept_secret, options);
    RDMABATCH_RETURN_IF_ERROR(SendAll(socket.get(), Pack(own)));
    auto stream =
        StreamOver(std::move(socket), offer_, TlsStream::Role::kListens, greeting, own, deadline);
    if (!stream.ok()) return stream.status();
    return TcpEndpoint::Create(poll_set_, std::move(*stream), options, greeting.queue_depth);
  } while (!deadline.expired());
  return Status(StatusCode::kDeadlineExceeded, "the peer did not connect");
}

Result<std::unique_ptr<Endpoint>> ConnectEndpoint(std::shared_ptr<PollSet> poll_set,
                                                  const std::string& bytes, bool tls,
                                                  const EndpointOptions& options,
                                                  Deadline deadline) {
  Offer offer;
  if (!Unpack(bytes, &offer)) {
    return Status(StatusCode::kDataLoss,
                  "an offer of the tcp transport that does not parse, or of another version");
  }
  if ((offer.tls != 0) != tls) {
    return Status(StatusCode::kFailedPrecondition,
                  tls ? "this side uses TLS and the peer does not"
                      : "the peer uses TLS and this side does not");
  }
  RDMABATCH_RETURN_IF_ERROR(CheckOptions(options));
  auto socket = ConnectTo(offer, deadline);
  if (!socket.ok()) return socket.status();
  const Greeting own = GreetingOf(offer.connect_secret, options);
  RDMABATCH_RETURN_IF_ERROR(SendAll(socket->get(), Pack(own)));
  Arriving arriving;
  Greeting greeting;
  while (true) {
    auto proven = arriving.Receive(socket->get(), offer.accept_secret, &greeting);
    if (!proven.ok()) return proven.status();
    if (*proven) break;
    if (!WaitFor(socket->get(), POLLIN, deadline)) {
      return Status(StatusCode::kDeadlineExceeded, "the peer did not accept the connection");
    }
  }
  auto stream =
      StreamOver(std::move(*socket), offer, TlsStream::Role::kConnects, own, greeting, deadline);
  if (!stream.ok()) return stream.status();
  return TcpEndpoint::Create(std::move(poll_set), std::move(*stream), options,
                             greeting.queue_depth);
}

}  // namespace rdmabatch::tcp
