#include "tf_rdmabatch/cc/transport/verbs/verbs_endpoint.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "tf_rdmabatch/cc/transport/verbs/verbs_transport.h"

namespace rdmabatch {
namespace verbs {
namespace {

// Not 7, which some devices take for "for ever". With the acknowledgement timeout (device.cc) a
// dead peer fails our requests in half a second.
constexpr uint8_t kRetryCount = 6;
// A receiver that is short of receives is slow, not dead: 7 is for ever.
constexpr uint8_t kRnrRetryCount = 7;
constexpr uint8_t kMinRnrTimer = 12;  // 0.64 ms

Status CheckOptions(const EndpointOptions& options) {
  if (options.counters == nullptr) return {StatusCode::kInvalidArgument, "no counters"};
  if (options.send_queue_depth == 0 || options.max_receives == 0) {
    return {StatusCode::kInvalidArgument, "a queue of depth 0"};
  }
  return Status::Ok();
}

Status CheckLimit(const char* what, uint64_t asked, int limit, const char* device) {
  if (asked <= static_cast<uint64_t>(std::max(limit, 0))) return Status::Ok();
  return {StatusCode::kInvalidArgument, std::string(what) + " of " + std::to_string(asked) +
                                            " is more than the " + std::to_string(limit) +
                                            " that " + device + " has"};
}

}  // namespace

VerbsEndpoint::VerbsEndpoint(VerbsTransport* transport, CmChannel channel, CmId id,
                             const EndpointOptions& options)
    : transport_(transport),
      options_(options),
      channel_(std::move(channel)),
      id_(std::move(id)),
      send_(transport->device().fabric(), options) {}

Result<std::unique_ptr<VerbsEndpoint>> VerbsEndpoint::Create(VerbsTransport* transport,
                                                             CmChannel channel, CmId id,
                                                             const EndpointOptions& options) {
  RDMABATCH_RETURN_IF_ERROR(CheckOptions(options));
  const Device& device = transport->device();
  // The largest that a queue becomes: two entries a request, and the slack.
  RDMABATCH_RETURN_IF_ERROR(CheckLimit("a send queue depth", 2ull * options.send_queue_depth + 2,
                                       device.limits().max_qp_wr, device.name()));
  RDMABATCH_RETURN_IF_ERROR(CheckLimit("a number of receives", options.max_receives + 2ull,
                                       device.limits().max_qp_wr, device.name()));
  std::unique_ptr<VerbsEndpoint> endpoint(
      new VerbsEndpoint(transport, std::move(channel), std::move(id), options));
  RDMABATCH_RETURN_IF_ERROR(endpoint->CreateQueues());
  return endpoint;
}

Status VerbsEndpoint::CreateQueues() {
  send_completions_.reset(Lib().ibv.create_cq(transport_->device().context(),
                                              static_cast<int>(send_.entries()), nullptr,
                                              transport_->completion_channel(), 0));
  if (send_completions_ == nullptr) return ErrnoStatus("creating a completion queue", errno);
  Result<std::unique_ptr<ReceiveQueue>> receives =
      ReceiveQueue::Create(transport_->protection_domain(), options_.max_receives);
  if (!receives.ok()) return receives.status();
  receives_ = std::move(*receives);
  RDMABATCH_RETURN_IF_ERROR(transport_->Join(this, options_.max_receives, &group_, &member_));
  RDMABATCH_RETURN_IF_ERROR(CreateQueuePair(group_));
  send_.Attach(id_->qp, send_completions_.get());
  return receives_->Start(id_->qp, member_);
}

Status VerbsEndpoint::CreateQueuePair(ReceiveGroup* group) {
  // Inline capacity cannot be asked for, only tried.
  const uint32_t most = transport_->device().max_inline();
  int error = 0;
  for (uint32_t max_inline : {most, most / 4, 0u}) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = send_completions_.get();
    attributes.recv_cq = group->completions.get();
    attributes.cap.max_send_wr = send_.entries();
    attributes.cap.max_recv_wr = receives_->entries();
    attributes.cap.max_send_sge = 1;
    attributes.cap.max_recv_sge = 1;
    attributes.cap.max_inline_data = max_inline;
    attributes.qp_type = IBV_QPT_RC;
    if (Lib().cm.create_qp(id_.get(), transport_->protection_domain(), &attributes) == 0) {
      queue_pair_.reset(id_.get());
      // Some devices report more than works.
      max_inline_ = std::min(max_inline, attributes.cap.max_inline_data);
      return Status::Ok();
    }
    error = errno;
  }
  return ErrnoStatus("creating a queue pair", error);
}

VerbsEndpoint::~VerbsEndpoint() {
  Close();
  if (group_ != nullptr) transport_->Withdraw(group_, member_);
  queue_pair_.reset();
  if (group_ != nullptr) transport_->Release(group_, member_);
}

Status VerbsEndpoint::Connect(const Cookie& cookie, Deadline deadline) {
  ConnectRequest request;
  request.cookie = cookie;
  const std::string bytes = request.Encode();
  rdma_conn_param param{};
  param.private_data = bytes.data();
  param.private_data_len = static_cast<uint8_t>(bytes.size());
  param.initiator_depth = transport_->device().max_reads();
  param.responder_resources = transport_->device().max_reads();
  param.retry_count = kRetryCount;
  param.rnr_retry_count = kRnrRetryCount;
  if (Lib().cm.connect(id_.get(), &param) != 0) return ErrnoStatus("rdma_connect", errno);
  return FinishConnecting("connecting", deadline);
}

Status VerbsEndpoint::Accept(const rdma_conn_param& request, Deadline deadline) {
  rdma_conn_param param{};
  const uint8_t max_reads = transport_->device().max_reads();
  // What the peer asks for, as seen from here.
  param.initiator_depth = std::min(max_reads, request.initiator_depth);
  param.responder_resources = std::min(max_reads, request.responder_resources);
  param.rnr_retry_count = kRnrRetryCount;
  if (Lib().cm.accept(id_.get(), &param) != 0) return ErrnoStatus("rdma_accept", errno);
  return FinishConnecting("accepting", deadline);
}

Status VerbsEndpoint::FinishConnecting(const char* what, Deadline deadline) {
  RDMABATCH_RETURN_IF_ERROR(channel_.Expect(RDMA_CM_EVENT_ESTABLISHED, what, deadline));
  if (transport_->device().fabric() == Fabric::kIwarp) return Status::Ok();
  // rdma_cm also allows atomics, and makes a sender wait 655 ms when there is no receive for it.
  ibv_qp_attr attributes{};
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  attributes.min_rnr_timer = kMinRnrTimer;
  const int error =
      Lib().ibv.modify_qp(id_->qp, &attributes, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) return ErrnoStatus("restricting a queue pair", error);
  return Status::Ok();
}

Result<std::string> VerbsEndpoint::Export(const LocalMemory& memory) {
  if (memory.handle == nullptr || memory.access == Access::kLocal) {
    return Status(StatusCode::kInvalidArgument, "this memory was not registered for peers");
  }
  Descriptor descriptor;
  descriptor.address = reinterpret_cast<uint64_t>(memory.address);
  descriptor.bytes = memory.bytes;
  descriptor.key = memory.remote_key;
  return descriptor.Encode();
}

Result<RemoteMemory> VerbsEndpoint::Import(const std::string& descriptor) {
  Result<Descriptor> parsed = Descriptor::Parse(descriptor);
  if (!parsed.ok()) return parsed.status();
  RemoteMemory memory;
  memory.address = parsed->address;
  memory.bytes = parsed->bytes;
  memory.key = parsed->key;
  return memory;
}

Status VerbsEndpoint::CheckControl() {
  for (;;) {
    Result<CmEvent> event = channel_.TryNext();
    if (!event.ok()) {
      Break("the rdma_cm channel failed");
      break;
    }
    if (*event == nullptr) break;
    switch ((*event)->event) {
      case RDMA_CM_EVENT_DISCONNECTED:
        Break("the peer closed the connection or died");
        break;
      case RDMA_CM_EVENT_DEVICE_REMOVAL:
        Break("the RDMA device was removed");
        break;
      default:
        break;
    }
  }
  if (closed_.load(std::memory_order_acquire)) {
    return {StatusCode::kUnavailable, "the endpoint is closed"};
  }
  const char* reason = broken_.load(std::memory_order_acquire);
  if (reason != nullptr) return {StatusCode::kUnavailable, reason};
  return Status::Ok();
}

void VerbsEndpoint::Break(const char* reason) {
  const char* none = nullptr;
  if (!broken_.compare_exchange_strong(none, reason, std::memory_order_acq_rel)) return;
  transport_->NoteBroken();
  Disconnect();
}

void VerbsEndpoint::Close() {
  if (!closed_.exchange(true, std::memory_order_acq_rel)) Disconnect();
}

// Moves the queue pair to its error state, which flushes the receives, and tells the peer.
void VerbsEndpoint::Disconnect() {
  if (queue_pair_ == nullptr || disconnected_.exchange(true, std::memory_order_acq_rel)) return;
  // Fails when the connection is not there any more, which is what is wanted.
  Lib().cm.disconnect(id_.get());
}

}  // namespace verbs
}  // namespace rdmabatch
