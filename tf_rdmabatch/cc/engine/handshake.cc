#include "tf_rdmabatch/cc/engine/handshake.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "tf_rdmabatch/cc/engine/authenticate.h"
#include "tf_rdmabatch/cc/engine/bytes.h"
#include "tf_rdmabatch/cc/engine/progress.h"

namespace rdmabatch {
namespace {

constexpr size_t kMaxFrame = 16384;
constexpr size_t kMaxOffer = 256;
constexpr size_t kMaxReason = 1024;

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

std::string HostName() {
  char name[128] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

Status Garbled() { return {StatusCode::kDataLoss, "the peer's handshake does not parse"}; }

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

}  // namespace

Handshake::Handshake(Engine* engine, BootstrapSocket socket, Deadline deadline)
    : engine_(engine), deadline_(deadline), connection_(new Connection(engine)) {
  connection_->peer_.address = socket.peer();
  connection_->bootstrap_ = std::make_unique<BootstrapSocket>(std::move(socket));
  const EngineOptions& options = engine->options();
  mine_ = {options.name,
           HostName(),
           BootId(),
           static_cast<uint32_t>(getpid()),
           {options.slots, options.slot_bytes},
           options.queue_pairs,
           options.confirm};
}

Result<std::shared_ptr<Connection>> Handshake::Connect() {
  RDMABATCH_RETURN_IF_ERROR(
      AuthenticateClient(*connection_->bootstrap_, engine_->options().token, deadline_));
  RDMABATCH_RETURN_IF_ERROR(ExchangeHellos(true));
  return Finish(true, TryTransports());
}

Result<std::shared_ptr<Connection>> Handshake::Accept() {
  RDMABATCH_RETURN_IF_ERROR(
      AuthenticateServer(*connection_->bootstrap_, engine_->options().token, deadline_));
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
  auto hello = Hello::Decode(*frame);
  if (!hello.ok()) return hello.status();
  peer_ = std::move(*hello);
  connection_->peer_.name = peer_.name;
  connection_->peer_.host = peer_.host;
  connection_->peer_.pid = peer_.pid;
  const Hello& decides = active ? mine_ : peer_;
  connection_->confirm_ = decides.confirm;
  mine_.lanes = peer_.lanes = decides.lanes;
  return Status::Ok();
}

std::shared_ptr<Transport> Handshake::Find(const std::string& name) const {
  for (const auto& transport : engine_->transports_) {
    if (name == transport->name()) return transport;
  }
  return nullptr;
}

// The connecting half of the choice. An empty name ends it.
Status Handshake::TryTransports() {
  std::string why;
  auto unavailable = engine_->unavailable_.begin();
  const auto add_preferred_to = [&](size_t rank) {
    for (; unavailable != engine_->unavailable_.end() && unavailable->second <= rank;
         ++unavailable) {
      why += unavailable->first + "; ";
    }
  };
  for (size_t i = 0; i < engine_->transports_.size(); ++i) {
    const auto& transport = engine_->transports_[i];
    const std::string name = transport->name();
    add_preferred_to(i);
    if (!transport->reaches_other_hosts() && mine_.boot_id != peer_.boot_id) {
      why += name + ": the peer is on another host; ";
      continue;
    }
    RDMABATCH_RETURN_IF_ERROR(Send(name));
    Status tried = TryTransport(transport);
    if (tried.ok()) {
      connection_->transport_name_ = name;
      connection_->choice_ =
          name + (why.empty() ? " (first choice)" : " (" + why.substr(0, why.size() - 2) + ")");
      return Status::Ok();
    }
    // Without the bootstrap connection there is no next try.
    if (deadline_.expired()) return tried;
    why += name + ": " + tried.message() + "; ";
  }
  add_preferred_to(engine_->transports_.size());
  RDMABATCH_RETURN_IF_ERROR(Send(""));
  return {StatusCode::kUnavailable, "no transport reaches " + connection_->peer_.ToString() + ": " +
                                        (why.empty() ? "none is usable here" : why)};
}

Status Handshake::TryTransport(const std::shared_ptr<Transport>& transport) {
  RDMABATCH_RETURN_IF_ERROR(ReceiveStatus());
  auto frame = Receive();
  if (!frame.ok()) return frame.status();
  auto offers = DecodeList(*frame, mine_.lanes, kMaxOffer);
  if (!offers.ok()) return offers.status();
  Status status = MakeLanes(transport);
  for (size_t i = 0; i < offers->size() && status.ok(); ++i) {
    Lane& lane = *connection_->lanes_[i];
    auto endpoint = transport->Connect((*offers)[i], lane.MakeEndpointOptions(), deadline_);
    if (endpoint.ok()) {
      lane.SetEndpoint(std::move(*endpoint));
    } else {
      status = endpoint.status();
    }
  }
  RDMABATCH_RETURN_IF_ERROR(SendStatus(status));
  const Status theirs = ReceiveStatus();
  return status.ok() ? theirs : status;
}

Status Handshake::ServeTransports() {
  for (;;) {
    auto name = Receive();
    if (!name.ok()) return name.status();
    if (name->empty()) {
      return {StatusCode::kUnavailable, "no transport reaches " + connection_->peer_.ToString()};
    }
    std::shared_ptr<Transport> transport = Find(*name);
    if (transport == nullptr) {
      RDMABATCH_RETURN_IF_ERROR(
          SendStatus({StatusCode::kUnavailable, "the peer does not use this transport"}));
      continue;
    }
    Status served = ServeTransport(transport);
    if (served.ok()) {
      connection_->transport_name_ = transport->name();
      connection_->choice_ = connection_->transport_name_ + " (the peer's choice)";
      return Status::Ok();
    }
    if (deadline_.expired() || served.code() == StatusCode::kDataLoss) return served;
  }
}

Status Handshake::ServeTransport(const std::shared_ptr<Transport>& transport) {
  std::vector<std::unique_ptr<Acceptor>> acceptors;
  std::vector<std::string> offers;
  Status status = MakeLanes(transport);
  for (uint32_t i = 0; i < peer_.lanes && status.ok(); ++i) {
    auto acceptor = transport->Listen(connection_->bootstrap_->local_ip());
    if (acceptor.ok()) {
      offers.push_back((*acceptor)->offer());
      acceptors.push_back(std::move(*acceptor));
    } else {
      status = acceptor.status();
    }
  }
  RDMABATCH_RETURN_IF_ERROR(SendStatus(status));
  RDMABATCH_RETURN_IF_ERROR(status);
  RDMABATCH_RETURN_IF_ERROR(Send(EncodeList(offers, kMaxOffer)));
  status = AcceptLanes(&acceptors);
  const Status theirs = ReceiveStatus();
  RDMABATCH_RETURN_IF_ERROR(SendStatus(status));
  return status.ok() ? theirs : status;
}

Status Handshake::AcceptLanes(std::vector<std::unique_ptr<Acceptor>>* acceptors) {
  for (size_t i = 0; i < acceptors->size(); ++i) {
    Lane& lane = *connection_->lanes_[i];
    // A peer that failed to connect says so over the bootstrap connection; it need not be waited
    // for long.
    const double left = static_cast<double>(deadline_.RemainingMs(3000)) / 1000;
    auto endpoint = (*acceptors)[i]->Accept(lane.MakeEndpointOptions(), Deadline::After(left));
    if (!endpoint.ok()) return endpoint.status();
    lane.SetEndpoint(std::move(*endpoint));
  }
  return Status::Ok();
}

Status Handshake::MakeLanes(const std::shared_ptr<Transport>& transport) {
  // Lanes of an earlier try stay alive in the progress thread until it has dropped them.
  auto fresh = std::shared_ptr<Connection>(new Connection(engine_));
  fresh->peer_ = connection_->peer_;
  fresh->confirm_ = connection_->confirm_;
  fresh->bootstrap_ = std::move(connection_->bootstrap_);
  fresh->transport_ = transport;
  engine_->progress_->Remove(connection_.get());
  connection_ = std::move(fresh);
  const uint64_t window = uint64_t{mine_.lanes} * mine_.geometry.slots;
  connection_->reassembly_.SetLimits(connection_->max_message_bytes_,
                                     window * mine_.geometry.slot_bytes, window);
  for (uint32_t i = 0; i < mine_.lanes; ++i) {
    auto lane = Lane::Create({i, mine_.geometry, peer_.geometry, connection_->confirm_,
                              connection_.get(), transport.get()},
                             engine_->options());
    if (!lane.ok()) return lane.status();
    connection_->lanes_.push_back(std::move(*lane));
  }
  engine_->progress_->Add(connection_);
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
  connection_->Activate();
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
