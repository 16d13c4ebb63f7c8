#include "tf_rdmabatch/cc/engine/options.h"

#include <cstdlib>

#include "tf_rdmabatch/cc/engine/wire.h"
#include "tf_rdmabatch/cc/transport/registry.h"

namespace rdmabatch {
namespace {

Status Invalid(const std::string& what) { return {StatusCode::kInvalidArgument, what}; }

constexpr char kPortsEnv[] = "TF_RDMABATCH_PORTS";

}  // namespace

Result<PortRange> EngineOptions::Ports() const {
  if (!ports.empty()) return PortRange::Parse(ports);
  const char* text = std::getenv(kPortsEnv);
  auto range = PortRange::Parse(text == nullptr ? "" : text);
  if (range.ok()) return range;
  return Status(range.status().code(), std::string(kPortsEnv) + ": " + range.status().message());
}

Status EngineOptions::Validate() const {
  if (token.empty()) {
    return Invalid(
        "no token: pass one, or set TF_RDMABATCH_TOKEN to the same secret in every task");
  }
  if (name.size() > 128) return Invalid("a task's name has at most 128 bytes");
  if (transport != "auto" && FindTransport(transport) == nullptr) {
    std::string known = "auto";
    for (const TransportFactory& t : Transports()) known += std::string(", ") + t.name;
    return Invalid("no transport \"" + transport + "\": choose one of " + known);
  }
  if (auto range = Ports(); !range.ok()) return range.status();
  if (!ValidGeometry({slots, slot_bytes})) {
    return Invalid("slots must be a multiple of 64 up to " + std::to_string(kMaxSlots) +
                   ", and slot_bytes a multiple of 64 from " + std::to_string(kMinSlotBytes) +
                   " to " + std::to_string(kMaxSlotBytes));
  }
  if (queue_pairs < 1 || queue_pairs > 16) return Invalid("queue_pairs must be 1 to 16");
  if (max_batch < 1 || chains_in_flight < 1) {
    return Invalid("max_batch and chains_in_flight must be at least 1");
  }
  if (max_peers < 1) return Invalid("max_peers must be at least 1");
  if (!(handshake_timeout_s > 0)) return Invalid("handshake_timeout_s must be positive");
  return Status::Ok();
}

}  // namespace rdmabatch
