#include "tf_rdmabatch/cc/engine/handshake.h"

#include <unistd.h>

#include <utility>

#include "tf_rdmabatch/cc/engine/authenticate.h"
#include "tf_rdmabatch/cc/engine/bytes.h"
#include "tf_rdmabatch/cc/engine/progress.h"

namespace rdmabatch {
namespace {

constexpr size_t kMaxFrame = 16384;
constexpr size_t kMaxReason = 1024;

Status Garbled() { return {StatusCode::kDataLoss, "the peer's handshake does not parse"}; }

}  // namespace

std::string EncodeList(const std::vector<std::string>& items, size_t most) {
  ByteWriter writer;
  writer.U16(static_cast<uint16_t>(items.size()));
  for (const std::string& item : items) writer.String(item, most);
  return writer.Take();
}

Result<std::vector<std::string>> DecodeList(const std::string& bytes, size_t count, size_t most) {
  ByteReader reader(bytes);
  std::vector<std::string> items;
  if (reader.U16() != count) reader.Fail();
  for (size_t i = 0; i < count && reader.ok(); ++i) items.emplace_back(reader.String(most));
  if (!reader.done()) return Garbled();
  return items;
}

Handshake::Handshake(Engine* engine, BootstrapSocket socket, Deadline deadline)
    : engine_(engine), deadline_(deadline), connection_(new Connection(engine)) {
  connection_->peer_.address = socket.peer();
  connection_->bootstrap_ = std::make_unique<BootstrapSocket>(std::move(socket));
  const EngineOptions& options = engine->options();
  mine_ = {options.name,
           options.host.name,
           options.software,
           options.host.boot_id,
           options.host.network,
           static_cast<uint32_t>(getpid()),
           {options.slots, options.slot_bytes},
           options.queue_pairs,
           options.confirm,
           engine->states_};
}

Result<std::shared_ptr<Connection>> Handshake::Connect() {
  RDMABATCH_RETURN_IF_ERROR(AuthenticateClient(*connection_->bootstrap_, engine_->options().token,
                                               deadline_, engine_->tls_));
  RDMABATCH_RETURN_IF_ERROR(ExchangeHellos(true));
  return Finish(true, TryTransports());
}

Result<std::shared_ptr<Connection>> Handshake::Accept() {
  RDMABATCH_RETURN_IF_ERROR(AuthenticateServer(*connection_->bootstrap_, engine_->options().token,
                                               deadline_, engine_->tls_));
  RDMABATCH_RETURN_IF_ERROR(ExchangeHellos(false));
  return Finish(false, ServeTransports());
}

Result<std::shared_ptr<Connection>> Handshake::Finish(bool active, Status status) {
  if (status.ok()) status = ExchangeSegments();
  if (status.ok()) status = Ready(active);
  if (status.ok()) return connection_;
  connection_->Fail(status);
  return status;
}

Status Handshake::ExchangeHellos(bool active) {
  RDMABATCH_RETURN_IF_ERROR(Send(mine_.Encode()));
  auto frame = Receive();
  if (!frame.ok()) return frame.status();
  auto hello = Hello::Decode(*frame, mine_);
  if (!hello.ok()) return hello.status();
  peer_ = std::move(*hello);
  connection_->peer_.name = peer_.name;
  connection_->peer_.host = peer_.host_name;
  connection_->peer_.pid = peer_.pid;
  const Hello& decides = active ? mine_ : peer_;
  connection_->confirm_ = decides.confirm;
  mine_.lanes = peer_.lanes = decides.lanes;
  return Status::Ok();
}

Status Handshake::ExchangeSegments() {
  std::vector<std::string> descriptors;
  for (const auto& lane : connection_->lanes_) {
    auto descriptor = lane->ExportSegment();
    if (!descriptor.ok()) return descriptor.status();
    descriptors.push_back(std::move(*descriptor));
  }
  RDMABATCH_RETURN_IF_ERROR(Send(EncodeList(descriptors, kMaxOffer)));
  auto frame = Receive();
  if (!frame.ok()) return frame.status();
  auto theirs = DecodeList(*frame, connection_->lanes_.size(), kMaxOffer);
  if (!theirs.ok()) return theirs.status();
  for (size_t i = 0; i < theirs->size(); ++i) {
    RDMABATCH_RETURN_IF_ERROR(connection_->lanes_[i]->ImportSegment((*theirs)[i]));
  }
  return Status::Ok();
}

// The listening side answers: once it is ready the other side is, so that it may send at once. The
// connecting side sends when it has the answer. So nothing arrives before the sink knows the peer.
Status Handshake::Ready(bool active) {
  engine_->progress_->Wake();
  if (!active) {
    RDMABATCH_RETURN_IF_ERROR(ReceiveReady());
    connection_->SetUsable();
  }
  engine_->sink()->OnConnected(*connection_);
  RDMABATCH_RETURN_IF_ERROR(connection_->Activate());
  engine_->Adopt(connection_);
  RDMABATCH_RETURN_IF_ERROR(Send("ready"));
  if (!active) return Status::Ok();
  RDMABATCH_RETURN_IF_ERROR(ReceiveReady());
  connection_->SetUsable();
  return Status::Ok();
}

Status Handshake::ReceiveReady() {
  auto frame = Receive();
  if (!frame.ok()) return frame.status();
  return *frame == "ready" ? Status::Ok() : Garbled();
}

Status Handshake::Send(const std::string& frame) {
  return connection_->bootstrap_->SendFrame(frame, deadline_);
}

Result<std::string> Handshake::Receive() {
  return connection_->bootstrap_->ReceiveFrame(deadline_, kMaxFrame);
}

Status Handshake::SendStatus(const Status& status) {
  ByteWriter writer;
  writer.U8(static_cast<uint8_t>(status.code()));
  writer.String(status.message().substr(0, kMaxReason), kMaxReason);
  return Send(writer.bytes());
}

Status Handshake::ReceiveStatus() {
  auto frame = Receive();
  if (!frame.ok()) return frame.status();
  ByteReader reader(*frame);
  const auto code = reader.U8();
  std::string message(reader.String(kMaxReason));
  if (!reader.done() || code > static_cast<uint8_t>(StatusCode::kInternal)) return Garbled();
  if (code == 0) return Status::Ok();
  return {static_cast<StatusCode>(code), "peer: " + message};
}

}  // namespace rdmabatch
