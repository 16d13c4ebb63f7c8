#include "tf_rdmabatch/cc/engine/options.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "tf_rdmabatch/cc/engine/wire.h"

namespace rdmabatch {
namespace {

Status Invalid(const std::string& what) { return {StatusCode::kInvalidArgument, what}; }

constexpr char kPortsEnv[] = "TF_RDMABATCH_PORTS";
constexpr char kTlsEnv[] = "TF_RDMABATCH_TLS";
constexpr char kTransportEnv[] = "TF_RDMABATCH_TRANSPORT";

std::string FromEnvironment(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

// An error of a value names the variable that it came from.
template <typename T>
Result<T> Named(const char* variable, Result<T> result) {
  if (result.ok()) return result;
  return Status(result.status().code(), std::string(variable) + ": " + result.status().message());
}

}  // namespace

Result<PortRange> EngineOptions::Ports() const {
  if (!ports.empty()) return PortRange::Parse(ports);
  return Named(kPortsEnv, PortRange::Parse(FromEnvironment(kPortsEnv)));
}

Result<bool> EngineOptions::Tls() const {
  if (tls.has_value()) return *tls;
  const std::string text = FromEnvironment(kTlsEnv);
  if (text.empty() || text == "0") return false;
  if (text == "1") return true;
  return Invalid(std::string(kTlsEnv) + ": \"" + text + "\" is neither 1 nor 0");
}

Result<TransportRules> EngineOptions::Rules(Span<const TransportFactory> known) const {
  if (!transport.empty()) return TransportRules::Parse(transport, known);
  const std::string text = FromEnvironment(kTransportEnv);
  return Named(kTransportEnv,
               TransportRules::Parse(text.empty() ? TransportRules::kAuto : text, known));
}

std::vector<SoftwareVersion> SoftwareOfThisLibrary() {
  return {{"tf_rdmabatch", RDMABATCH_VERSION}};
}

HostIdentity HostIdentity::OfThisHost() {
  HostIdentity host;
  char name[128] = {};
  gethostname(name, sizeof(name) - 1);
  host.name = name;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::getline(file, host.boot_id);
  char link[64] = {};
  if (readlink("/proc/self/ns/net", link, sizeof(link) - 1) > 0) host.network = link;
  return host;
}

Status EngineOptions::Validate() const {
  if (token.empty()) {
    return Invalid(
        "no token: pass one, or set TF_RDMABATCH_TOKEN to the same secret in every task");
  }
  if (name.size() > 128) return Invalid("a task's name has at most 128 bytes");
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
