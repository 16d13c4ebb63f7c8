// The control path of TcpEndpoint.
#include "tf_rdmabatch/cc/transport/tcp/tcp_endpoint.h"

#include <utility>

#include "tf_rdmabatch/cc/transport/tcp/socket.h"

namespace rdmabatch::tcp {

Status CheckOptions(const EndpointOptions& options) {
  if (options.counters == nullptr)
    return {StatusCode::kInvalidArgument, "EndpointOptions::counters is required"};
  if (options.send_queue_depth == 0 || options.send_queue_depth > kMaxQueueDepth) {
    return {StatusCode::kInvalidArgument,
            "send_queue_depth must be 1 to " + std::to_string(kMaxQueueDepth)};
  }
  return Status::Ok();
}

Result<std::unique_ptr<Endpoint>> TcpEndpoint::Create(std::shared_ptr<PollSet> poll_set,
                                                      Stream stream, const EndpointOptions& options,
                                                      uint32_t peer_reads) {
  std::unique_ptr<TcpEndpoint> endpoint(
      new TcpEndpoint(std::move(poll_set), std::move(stream), options, peer_reads));
  RDMABATCH_RETURN_IF_ERROR(endpoint->poll_set_->Add(endpoint.get()));
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

TcpEndpoint::TcpEndpoint(std::shared_ptr<PollSet> poll_set, Stream stream,
                         const EndpointOptions& options, uint32_t peer_reads)
    : poll_set_(std::move(poll_set)),
      context_(options.context),
      counters_(options.counters),
      link_(std::move(stream), poll_set_->epoll()),
      queue_(options),
      output_(&link_, &queue_, options.counters, peer_reads),
      input_(&link_, &queue_, &output_, &exports_, options),
      watchdog_(link_.socket()) {
  if (IsLocal(link_.socket())) UsePlainCongestionControl(link_.socket());
}

TcpEndpoint::~TcpEndpoint() {
  Close();
  poll_set_->Remove(this);
}

// Afterwards no memory of a chain is touched any more.
void TcpEndpoint::Close() {
  link_.Close();
  poll_set_->AwaitOutside();
  output_.AwaitOutside();
}

void TcpEndpoint::CheckPeer(uint32_t since_ms) {
  if (!watchdog_.watches() || input_.ended()) return;
  switch (watchdog_.Look(since_ms)) {
    case Watchdog::Verdict::kAnswers:
      break;
    case Watchdog::Verdict::kIdle:
      output_.KeepAlive();
      break;
    case Watchdog::Verdict::kDead:
      link_.Break(kSilent);
      break;
  }
}

Result<std::string> TcpEndpoint::Export(const LocalMemory& memory) {
  if (memory.access == Access::kLocal || memory.handle == nullptr) {
    return Status(StatusCode::kInvalidArgument, "this memory was not registered for remote access");
  }
  auto region = exports_.Add(*static_cast<std::shared_ptr<Registration>*>(memory.handle));
  if (!region.ok()) return region.status();
  return Pack(*region);
}

Result<RemoteMemory> TcpEndpoint::Import(const std::string& descriptor) {
  Region region;
  if (!Unpack(descriptor, &region)) {
    return Status(StatusCode::kDataLoss,
                  "a region descriptor that does not parse, or of another version");
  }
  RDMABATCH_RETURN_IF_ERROR(link_.FailureStatus());
  return RemoteMemory{0, region.bytes, region.id, nullptr};
}

}  // namespace rdmabatch::tcp
