#include "tf_rdmabatch/cc/transport/shm/shm.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/random.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "tf_rdmabatch/cc/base/unique_fd.h"
#include "tf_rdmabatch/cc/transport/shm/layout.h"
#include "tf_rdmabatch/cc/transport/shm/poll_set.h"
#include "tf_rdmabatch/cc/transport/shm/shm_endpoint.h"
#include "tf_rdmabatch/cc/transport/shm/unix_socket.h"

namespace rdmabatch {
namespace shm {
namespace {

constexpr double kGreetingSeconds = 1;  // a stranger must not keep the peer from being accepted

// Identifies the running kernel: two processes with the same one can share memory.
Result<Token> BootId() {
  std::FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "re");
  if (file == nullptr)
    return Status(StatusCode::kUnavailable, "/proc/sys/kernel/random/boot_id cannot be read");
  Token id{};
  size_t digits = 0;
  for (int c = std::fgetc(file); c != EOF && digits < 2 * id.size(); c = std::fgetc(file)) {
    const int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (value < 0) continue;
    id[digits / 2] = static_cast<uint8_t>(id[digits / 2] << 4 | value);
    ++digits;
  }
  std::fclose(file);
  if (digits != 2 * id.size())
    return Status(StatusCode::kUnavailable, "the kernel's boot id does not parse");
  return id;
}

bool FillRandom(Token* token) {
  return getrandom(token->data(), token->size(), 0) == static_cast<ssize_t>(token->size());
}

class ShmAcceptor final : public Acceptor {
 public:
  ShmAcceptor(std::shared_ptr<PollSet> poll_set, UniqueFd listener, const Offer& offer)
      : poll_set_(std::move(poll_set)),
        listener_(std::move(listener)),
        offer_(offer),
        offer_bytes_(Pack(offer)) {}

  const std::string& offer() const override { return offer_bytes_; }

  Result<std::unique_ptr<Endpoint>> Accept(const EndpointOptions& options,
                                           Deadline deadline) override {
    if (!listener_.valid())
      return Status(StatusCode::kFailedPrecondition, "an offer is good for one Accept");
    const UniqueFd listener = std::move(listener_);
    while (true) {
      auto socket = AcceptFrom(listener.get(), deadline);
      if (!socket.ok()) return socket.status();
      const Deadline patience = Deadline::After(kGreetingSeconds);
      auto message =
          ReceiveBefore(socket->get(), patience.at_ns() < deadline.at_ns() ? patience : deadline);
      Greeting greeting;
      if (message.ok() && Unpack(message->bytes, &greeting) &&
          greeting.connect_secret == offer_.connect_secret) {
        return ShmEndpoint::Create(poll_set_, std::move(*socket), offer_, true, options, deadline);
      }
    }
  }

 private:
  const std::shared_ptr<PollSet> poll_set_;
  UniqueFd listener_;
  const Offer offer_;
  const std::string offer_bytes_;
};

class ShmTransport final : public Transport {
 public:
  ShmTransport(std::shared_ptr<PollSet> poll_set, const Token& boot_id)
      : poll_set_(std::move(poll_set)), boot_id_(boot_id) {}

  const char* name() const override { return kShmTransport.name; }
  bool reaches_other_hosts() const override { return false; }

  Result<LocalMemory> RegisterMemory(const Segment& segment, Access access) override {
    if (segment.data() == nullptr || segment.fd() < 0) {
      return Status(StatusCode::kInvalidArgument,
                    "only a segment that this process created can be registered");
    }
    if (access == Access::kRemoteRead) RDMABATCH_RETURN_IF_ERROR(segment.SealAgainstWriters());
    LocalMemory memory;
    memory.address = segment.data();
    memory.bytes = segment.size();
    memory.access = access;
    memory.fd = segment.fd();
    return memory;
  }
  void Deregister(const LocalMemory&) override {}

  Result<std::unique_ptr<Acceptor>> Listen(const std::string&) override {
    Offer offer;
    offer.boot_id = boot_id_;
    if (!FillRandom(&offer.name) || !FillRandom(&offer.connect_secret) ||
        !FillRandom(&offer.accept_secret)) {
      return Status(StatusCode::kInternal, "getrandom failed");
    }
    auto listener = ListenAt(offer.name);
    if (!listener.ok()) return listener.status();
    return std::unique_ptr<Acceptor>(new ShmAcceptor(poll_set_, std::move(*listener), offer));
  }

  Result<std::unique_ptr<Endpoint>> Connect(const std::string& bytes,
                                            const EndpointOptions& options,
                                            Deadline deadline) override {
    Offer offer;
    if (!Unpack(bytes, &offer)) {
      return Status(StatusCode::kDataLoss,
                    "an offer of shared memory that does not parse, or of another version");
    }
    if (offer.boot_id != boot_id_) {
      return Status(StatusCode::kUnavailable,
                    "the peer runs on another host, there is no memory to share");
    }
    auto socket = ConnectTo(offer.name);
    if (!socket.ok()) return socket.status();
    Greeting greeting;
    greeting.connect_secret = offer.connect_secret;
    auto sent = Send(socket->get(), Pack(greeting), {});
    if (!sent.ok()) return sent.status();
    return ShmEndpoint::Create(poll_set_, std::move(*socket), offer, false, options, deadline);
  }

  size_t PollReceive(Span<Completion> completions) override { return poll_set_->Poll(completions); }
  int event_fd() const override { return poll_set_->event_fd(); }
  void PrepareSleep() override { poll_set_->PrepareSleep(); }
  void FinishSleep() override { poll_set_->FinishSleep(); }

 private:
  const std::shared_ptr<PollSet> poll_set_;
  const Token boot_id_;
};

Status Probe() {
  const UniqueFd fd(memfd_create("rdmabatch", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) {
    return {StatusCode::kUnavailable,
            std::string("no sealable memfd (needs Linux 5.1): ") + std::strerror(errno)};
  }
  Token name{};
  if (!FillRandom(&name)) return {StatusCode::kUnavailable, "getrandom failed"};
  if (auto listener = ListenAt(name); !listener.ok()) return listener.status();
  return BootId().status();
}

Result<std::unique_ptr<Transport>> Create(const TransportOptions&) {
  auto boot_id = BootId();
  if (!boot_id.ok()) return boot_id.status();
  auto poll_set = PollSet::Create();
  if (!poll_set.ok()) return poll_set.status();
  return std::unique_ptr<Transport>(new ShmTransport(std::move(*poll_set), *boot_id));
}

}  // namespace
}  // namespace shm

const TransportFactory kShmTransport = {"shm", shm::Probe, shm::Create, /*confidential=*/true};

}  // namespace rdmabatch
