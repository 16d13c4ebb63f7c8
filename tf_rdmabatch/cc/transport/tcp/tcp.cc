#include "tf_rdmabatch/cc/transport/tcp/tcp.h"

#include <memory>
#include <string>
#include <utility>

#include "tf_rdmabatch/cc/transport/tcp/acceptor.h"
#include "tf_rdmabatch/cc/transport/tcp/exports.h"
#include "tf_rdmabatch/cc/transport/tcp/poll_set.h"

namespace rdmabatch {
namespace tcp {
namespace {

class TcpTransport final : public Transport {
 public:
  TcpTransport(std::shared_ptr<PollSet> poll_set, const TransportOptions& options)
      : poll_set_(std::move(poll_set)), options_(options) {}

  const char* name() const override { return kTcpTransport.name; }
  bool one_sided() const override { return false; }

  Result<LocalMemory> RegisterMemory(const Segment& segment, Access access) override {
    if (segment.data() == nullptr || segment.size() == 0) {
      return Status(StatusCode::kInvalidArgument, "an empty segment cannot be registered");
    }
    auto registration = std::make_shared<Registration>();
    registration->address = segment.data();
    registration->bytes = segment.size();
    registration->access = access;
    LocalMemory memory;
    memory.address = segment.data();
    memory.bytes = segment.size();
    memory.access = access;
    memory.fd = segment.fd();
    memory.handle = new std::shared_ptr<Registration>(std::move(registration));
    return memory;
  }

  void Deregister(const LocalMemory& memory) override {
    if (memory.handle == nullptr) return;
    const std::unique_ptr<std::shared_ptr<Registration>> registration(
        static_cast<std::shared_ptr<Registration>*>(memory.handle));
    (*registration)->alive.store(false, std::memory_order_seq_cst);
    poll_set_->AwaitQuiet();
  }

  Result<std::unique_ptr<Acceptor>> Listen(const std::string& local_ip) override {
    return TcpAcceptor::Create(poll_set_, local_ip, options_);
  }
  Result<std::unique_ptr<Endpoint>> Connect(const std::string& offer,
                                            const EndpointOptions& options,
                                            Deadline deadline) override {
    return ConnectEndpoint(poll_set_, offer, options_.tls, options, deadline);
  }

  size_t PollReceive(Span<Completion> completions) override { return poll_set_->Poll(completions); }
  // It tells of every socket that is ready, whenever it became so: nothing to arm.
  int event_fd() const override { return poll_set_->epoll(); }
  void PrepareSleep() override {}
  void FinishSleep() override {}

 private:
  const std::shared_ptr<PollSet> poll_set_;
  const TransportOptions options_;
};

Status Probe() { return PollSet::Create().status(); }

Result<std::unique_ptr<Transport>> Create(const TransportOptions& options) {
  auto poll_set = PollSet::Create();
  if (!poll_set.ok()) return poll_set.status();
  return std::unique_ptr<Transport>(new TcpTransport(std::move(*poll_set), options));
}

}  // namespace
}  // namespace tcp

const TransportFactory kTcpTransport = {"tcp", tcp::Probe, tcp::Create, /*confidential=*/true};

}  // namespace rdmabatch
