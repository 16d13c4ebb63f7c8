// The half of the handshake that finds a transport and connects the lanes.
#include <algorithm>
#include <utility>

#include "tf_rdmabatch/cc/base/log.h"
#include "tf_rdmabatch/cc/engine/handshake.h"
#include "tf_rdmabatch/cc/engine/progress.h"

namespace rdmabatch {
namespace {

constexpr int kLongestMs = 1 << 30;

std::string StateOf(const std::vector<TransportState>& states, const std::string& name) {
  for (const TransportState& state : states) {
    if (state.name == name) return state.why_not;
  }
  return "its build is without it";
}

// A reason without its advice.
std::string Brief(const std::string& reason) { return reason.substr(0, reason.find(';')); }

}  // namespace

std::shared_ptr<Transport> Handshake::Find(const std::string& name) const {
  for (const auto& transport : engine_->transports_) {
    if (name == transport->name()) return transport;
  }
  return nullptr;
}

// Why a transport need not be tried with this peer; empty: it may work.
std::string Handshake::WhyNot(const std::string& name) const {
  std::string here = StateOf(mine_.transports, name);
  if (!here.empty()) return here;
  if (!Find(name)->reaches_other_hosts()) {
    if (mine_.boot_id != peer_.boot_id) return "the peer is on another host";
    if (!mine_.network.empty() && !peer_.network.empty() && mine_.network != peer_.network) {
      return "the peer is in another network namespace of this host, as containers are";
    }
  }
  const std::string there = StateOf(peer_.transports, name);
  return there.empty() ? "" : "not at the peer: " + there;
}

// What is tried must leave time for what comes next.
Deadline Handshake::TryUntil(const std::vector<std::string>& later) const {
  const bool more =
      std::any_of(later.begin(), later.end(), [&](const auto& n) { return WhyNot(n).empty(); });
  if (!more) return deadline_;
  return Deadline::After(deadline_.RemainingMs(kLongestMs) / 2e3);
}

// The connecting half of the choice. An empty name ends it.
Status Handshake::TryTransports() {
  const std::string& wanted = engine_->rules_.For(mine_.name, peer_.name);
  const bool automatic = wanted == TransportRules::kAuto;
  std::vector<std::string> names;
  for (const TransportState& state : mine_.transports) {
    if (automatic || state.name == wanted) names.push_back(state.name);
  }
  std::string why;
  std::string failed;
  while (!names.empty()) {
    const std::string name = names.front();
    names.erase(names.begin());
    std::string reason = WhyNot(name);
    if (reason.empty()) {
      RDMABATCH_RETURN_IF_ERROR(Send(name));
      Status tried = TryTransport(Find(name), TryUntil(names));
      if (tried.ok()) {
        Choose(name, automatic ? why : "asked for", failed);
        return Status::Ok();
      }
      // Without the bootstrap connection there is no next try.
      if (deadline_.expired()) return tried;
      reason = tried.message();
      failed.append(failed.empty() ? "" : "; ").append(name).append(" failed: ").append(reason);
    }
    why += (why.empty() ? "" : "; ") + name + ": " + (automatic ? Brief(reason) : reason);
  }
  RDMABATCH_RETURN_IF_ERROR(Send(""));
  if (automatic) {
    return {StatusCode::kUnavailable,
            "no transport reaches " + connection_->peer_.ToString() + ": " + why};
  }
  return {StatusCode::kUnavailable, connection_->peer_.ToString() +
                                        " cannot be reached as transport=\"" +
                                        engine_->rules_.text() + "\" asks for (" + why +
                                        "): ask for \"auto\", or for another transport"};
}

// `why` it is none that is preferred, and which of those `failed` although they might have worked.
void Handshake::Choose(const std::string& name, const std::string& why, const std::string& failed) {
  connection_->transport_name_ = name;
  connection_->choice_ = name + " (" + (why.empty() ? "first choice" : why) + ")";
  if (failed.empty()) return;
  Log(LogLevel::kWarning, (mine_.name.empty() ? "this task" : mine_.name) + " uses " + name +
                              " to " + connection_->peer_.ToString() + ", since " + failed);
}

Status Handshake::TryTransport(const std::shared_ptr<Transport>& transport, Deadline until) {
  RDMABATCH_RETURN_IF_ERROR(ReceiveStatus());
  auto frame = Receive();
  if (!frame.ok()) return frame.status();
  auto offers = DecodeList(*frame, mine_.lanes, kMaxOffer);
  if (!offers.ok()) return offers.status();
  Status status = MakeLanes(transport);
  for (size_t i = 0; i < offers->size() && status.ok(); ++i) {
    Lane& lane = *connection_->lanes_[i];
    auto endpoint = transport->Connect((*offers)[i], lane.MakeEndpointOptions(), until);
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
    const std::string& wanted = engine_->rules_.For(mine_.name, peer_.name);
    if (transport == nullptr || (wanted != TransportRules::kAuto && wanted != *name)) {
      RDMABATCH_RETURN_IF_ERROR(
          SendStatus({StatusCode::kUnavailable,
                      "its transport=\"" + engine_->rules_.text() + "\" does not allow this one"}));
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

}  // namespace rdmabatch
