#include "tf_rdmabatch/cc/transport/verbs/device.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

namespace rdmabatch {
namespace verbs {
namespace {

constexpr char kDeviceEnv[] = "TF_RDMABATCH_DEVICE";

// The acknowledgement timeout of a queue pair is 4.096 us << kAckTimeout (67 ms). With kRetryCount
// (transport.cc) retries a dead peer is noticed in half a second.
constexpr uint8_t kAckTimeout = 14;

// Soft-iWARP carries no more inline, and iWARP cards hardly do.
constexpr uint32_t kMaxInlineIwarp = 64;
constexpr uint32_t kMaxInline = 256;

constexpr int kMaxReads = 16;

const char* NameOf(ibv_context* context) { return Lib().ibv.get_device_name(context->device); }

bool HasActivePort(ibv_context* context, const ibv_device_attr& limits) {
  for (uint8_t port = 1; port <= limits.phys_port_cnt; ++port) {
    // The exported function fills the first fields of the structure, those of its first version.
    ibv_port_attr attributes{};
    if (Lib().ibv.query_port(context, port,
                             reinterpret_cast<_compat_ibv_port_attr*>(&attributes)) == 0 &&
        attributes.state == IBV_PORT_ACTIVE) {
      return true;
    }
  }
  return false;
}

// Asked before rdma_cm, which only says that it found nothing.
Status CheckAnyDevice() {
  int count = 0;
  ibv_device** list = Lib().ibv.get_device_list(&count);
  if (list != nullptr) Lib().ibv.free_device_list(list);
  if (count > 0) return Status::Ok();
  return {StatusCode::kUnavailable,
          "no RDMA device (/sys/class/infiniband is empty or its user-space driver is missing); "
          "install ibverbs-providers, or make a software one: modprobe rdma_rxe && rdma link add "
          "rxe0 type rxe netdev eth0"};
}

}  // namespace

Device::Device(DeviceList devices, ibv_context* context, const ibv_device_attr& limits)
    : devices_(std::move(devices)),
      context_(context),
      limits_(limits),
      fabric_(context->device->transport_type == IBV_TRANSPORT_IWARP ? Fabric::kIwarp
                                                                     : Fabric::kInfiniBand) {}

Result<std::unique_ptr<Device>> Device::Open() {
  RDMABATCH_RETURN_IF_ERROR(LoadLibrary());
  RDMABATCH_RETURN_IF_ERROR(CheckAnyDevice());
  int count = 0;
  DeviceList devices(Lib().cm.get_devices(&count));
  if (devices == nullptr || count == 0) return ErrnoStatus("opening the RDMA devices", errno);

  const char* wanted = std::getenv(kDeviceEnv);
  if (wanted != nullptr && *wanted == '\0') wanted = nullptr;
  std::string names;
  bool found = false;
  for (int i = 0; i < count; ++i) {
    ibv_context* context = devices[i];
    const std::string name = NameOf(context);
    names += (names.empty() ? "" : ", ") + name;
    if (wanted != nullptr && name != wanted) continue;
    found = true;
    ibv_device_attr limits{};
    if (Lib().ibv.query_device(context, &limits) != 0) continue;
    if (!HasActivePort(context, limits)) continue;
    return std::unique_ptr<Device>(new Device(std::move(devices), context, limits));
  }
  if (!found) {
    return Status(StatusCode::kUnavailable, std::string(kDeviceEnv) + " names '" + wanted +
                                                "', but the RDMA devices here are: " + names);
  }
  return Status(StatusCode::kUnavailable,
                "no active port on " + (wanted != nullptr ? std::string(wanted) : names) +
                    "; check the cable and `rdma link`, and bring its interface up: ip link set "
                    "DEV up");
}

const char* Device::name() const { return NameOf(context_); }

uint32_t Device::max_inline() const {
  return fabric_ == Fabric::kIwarp ? kMaxInlineIwarp : kMaxInline;
}

uint8_t Device::max_reads() const {
  return static_cast<uint8_t>(
      std::min({kMaxReads, limits_.max_qp_rd_atom, limits_.max_qp_init_rd_atom}));
}

Result<CmId> Device::TryBind(CmChannel* channel, SocketAddress address,
                             const PortRange& ports) const {
  for (uint32_t port = ports.first; port <= ports.last; ++port) {
    Result<CmId> id = channel->CreateId();
    if (!id.ok()) return id;
    address.set_port(static_cast<uint16_t>(port));
    if (Lib().cm.bind_addr(id->get(), address.get()) == 0) {
      return (*id)->verbs == context_ ? std::move(id) : CmId();
    }
    if (ports.any() || errno != EADDRINUSE) return CmId();
  }
  return ports.AllInUse();
}

Result<CmId> Device::Bind(CmChannel* channel, SocketAddress preferred,
                          const PortRange& ports) const {
  // rdma_cm binds a loopback address to any device, and peers on other hosts cannot use it.
  if (!preferred.is_loopback()) {
    Result<CmId> id = TryBind(channel, preferred, ports);
    if (!id.ok() || *id != nullptr) return id;
  }
  std::string tried;
  for (const SocketAddress& address : HostAddresses(preferred.family())) {
    Result<CmId> id = TryBind(channel, address, ports);
    if (!id.ok() || *id != nullptr) return id;
    tried += (tried.empty() ? "" : ", ") + address.ToString();
  }
  return Status(StatusCode::kUnavailable,
                std::string("rdma_cm finds ") + name() + " at no address of this host (tried " +
                    (tried.empty() ? "none" : tried) +
                    "); give its interface an address of its own: ip addr add ADDRESS dev DEV");
}

Status Device::ResolveAddress(CmChannel* channel, rdma_cm_id* id, sockaddr* source,
                              SocketAddress* peer, Deadline deadline) const {
  // rdma_cm's own timer ends later than ours: Expect gives the clearer answer.
  const int timeout_ms = deadline.RemainingMs(std::numeric_limits<int>::max() - 1) + 1;
  if (Lib().cm.resolve_addr(id, source, peer->get(), timeout_ms) != 0) {
    return ErrnoStatus(("resolving " + peer->ToString()).c_str(), errno);
  }
  const std::string what = "resolving " + peer->ToString() + " through " + name();
  RDMABATCH_RETURN_IF_ERROR(channel->Expect(RDMA_CM_EVENT_ADDR_RESOLVED, what.c_str(), deadline));
  if (id->verbs == context_) return Status::Ok();
  return {StatusCode::kNotFound, "rdma_cm reaches " + peer->ToString() + " through " +
                                     NameOf(id->verbs) + ", not through " + name() + "; set " +
                                     kDeviceEnv + " to choose a device"};
}

Status Device::SetAckTimeout(rdma_cm_id* id) const {
  if (fabric_ == Fabric::kIwarp) return Status::Ok();  // TCP has its own
  uint8_t timeout = kAckTimeout;
  if (Lib().cm.set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
                          sizeof(timeout)) != 0) {
    return ErrnoStatus("setting the acknowledgement timeout", errno);
  }
  return Status::Ok();
}

Result<CmId> Device::Resolve(CmChannel* channel, SocketAddress peer, Deadline deadline) const {
  Result<CmId> id = channel->CreateId();
  if (!id.ok()) return id;
  Status status = ResolveAddress(channel, id->get(), nullptr, &peer, deadline);
  if (status.code() == StatusCode::kNotFound) {
    // The route prefers another device: leave from an address of ours.
    Result<CmId> bound = Bind(channel, peer);
    if (!bound.ok()) return bound;
    id = std::move(bound);
    status = ResolveAddress(channel, id->get(), nullptr, &peer, deadline);
  }
  if (!status.ok()) return status;
  RDMABATCH_RETURN_IF_ERROR(SetAckTimeout(id->get()));
  const int timeout_ms = deadline.RemainingMs(std::numeric_limits<int>::max() - 1) + 1;
  if (Lib().cm.resolve_route(id->get(), timeout_ms) != 0) {
    return ErrnoStatus("rdma_resolve_route", errno);
  }
  const std::string what = "finding a route to " + peer.ToString();
  status = channel->Expect(RDMA_CM_EVENT_ROUTE_RESOLVED, what.c_str(), deadline);
  if (!status.ok()) return status;
  return id;
}

}  // namespace verbs
}  // namespace rdmabatch
