#include "tf_rdmabatch/cc/transport/verbs/verbs_transport.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "tf_rdmabatch/cc/base/log.h"
#include "tf_rdmabatch/cc/transport/verbs/memlock.h"
#include "tf_rdmabatch/cc/transport/verbs/verbs.h"
#include "tf_rdmabatch/cc/transport/verbs/verbs_acceptor.h"
#include "tf_rdmabatch/cc/transport/verbs/verbs_endpoint.h"

namespace rdmabatch {
namespace verbs {
namespace {

// The slots of a few peers. Less than this is a default that nobody chose (64 KiB or 8 MiB).
constexpr uint64_t kLeastMemlock = uint64_t{64} << 20;

int AccessFlags(Access access, Fabric fabric) {
  switch (access) {
    case Access::kRemoteRead:
      return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
    case Access::kRemoteWrite:
      return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    case Access::kRemoteReadWrite:
      return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    case Access::kLocal:
      break;
  }
  // On iWARP a READ ends in a tagged write by the peer, so its destination must allow that.
  return IBV_ACCESS_LOCAL_WRITE | (fabric == Fabric::kIwarp ? IBV_ACCESS_REMOTE_WRITE : 0);
}

Status RegistrationFailed(int error, uint64_t bytes) {
  Status status = ErrnoStatus(("registering " + std::to_string(bytes) + " bytes").c_str(), error);
  std::string hint;
  if (error == EFAULT) {
    hint = "; shared mappings of files on some file systems cannot be registered, use a Segment";
  } else if (error == ENOMEM) {
    hint = "; the memlock limit (`ulimit -l`) or the memory of the host is exhausted";
  }
  return {status.code(), status.message() + hint};
}

}  // namespace

VerbsTransport::VerbsTransport(const TransportOptions& options, std::unique_ptr<Device> device,
                               ProtectionDomain protection_domain, CompletionChannel channel)
    : options_(options),
      device_(std::move(device)),
      protection_domain_(std::move(protection_domain)),
      channel_(std::move(channel)) {}

Status VerbsTransport::Probe() {
  Result<std::unique_ptr<Device>> device = Device::Open();
  if (!device.ok()) return device.status();
  Result<CmChannel> channel = CmChannel::Create();
  if (!channel.ok()) return channel.status();
  Result<CmId> id = (*device)->Bind(&*channel, *SocketAddress::Parse("127.0.0.1"));
  if (!id.ok()) return id.status();
  return Memlock::Read().Check(kLeastMemlock);
}

Result<std::unique_ptr<Transport>> VerbsTransport::Create(const TransportOptions& options) {
  Result<std::unique_ptr<Device>> device = Device::Open();
  if (!device.ok()) return device.status();
  ibv_context* context = (*device)->context();
  ProtectionDomain protection_domain(Lib().ibv.alloc_pd(context));
  if (protection_domain == nullptr) return ErrnoStatus("allocating a protection domain", errno);
  CompletionChannel channel(Lib().ibv.create_comp_channel(context));
  if (channel == nullptr) return ErrnoStatus("creating a completion channel", errno);
  const int flags = fcntl(channel->fd, F_GETFL);
  if (flags < 0 || fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return ErrnoStatus("fcntl on a completion channel", errno);
  }
  return std::unique_ptr<Transport>(new VerbsTransport(
      options, std::move(*device), std::move(protection_domain), std::move(channel)));
}

Result<LocalMemory> VerbsTransport::RegisterMemory(const Segment& segment, Access access) {
  if (segment.size() == 0) return Status(StatusCode::kInvalidArgument, "an empty segment");
  RDMABATCH_RETURN_IF_ERROR(Memlock::Read().Check(segment.size()));
  ibv_mr* region = Lib().ibv.reg_mr(protection_domain_.get(), segment.data(), segment.size(),
                                    AccessFlags(access, device_->fabric()));
  if (region == nullptr) return RegistrationFailed(errno, segment.size());
  LocalMemory memory;
  memory.address = segment.data();
  memory.bytes = segment.size();
  memory.local_key = region->lkey;
  memory.remote_key = region->rkey;
  memory.access = access;
  memory.fd = segment.fd();
  memory.handle = region;
  return memory;
}

void VerbsTransport::Deregister(const LocalMemory& memory) {
  if (memory.handle != nullptr) MemoryRegion(static_cast<ibv_mr*>(memory.handle));
}

Result<std::unique_ptr<Acceptor>> VerbsTransport::Listen(const std::string& local_ip) {
  return VerbsAcceptor::Create(this, local_ip);
}

Result<std::unique_ptr<Endpoint>> VerbsTransport::Connect(const std::string& offer,
                                                          const EndpointOptions& options,
                                                          Deadline deadline) {
  Result<Offer> parsed = Offer::Parse(offer);
  if (!parsed.ok()) return parsed.status();
  if (parsed->fabric != device_->fabric()) {
    const bool peer_is_iwarp = parsed->fabric == Fabric::kIwarp;
    return Status(StatusCode::kUnavailable,
                  std::string(device_->name()) + " is " + (peer_is_iwarp ? "not " : "") +
                      "an iWARP device, the peer's is" + (peer_is_iwarp ? "" : " not"));
  }
  Result<CmChannel> channel = CmChannel::Create();
  if (!channel.ok()) return channel.status();
  Result<CmId> id = device_->Resolve(&*channel, SocketAddress::FromOffer(*parsed), deadline);
  if (!id.ok()) return id.status();
  Result<std::unique_ptr<VerbsEndpoint>> endpoint =
      VerbsEndpoint::Create(this, std::move(*channel), std::move(*id), options);
  if (!endpoint.ok()) return endpoint.status();
  RDMABATCH_RETURN_IF_ERROR((*endpoint)->Connect(parsed->cookie, deadline));
  return std::unique_ptr<Endpoint>(std::move(*endpoint));
}

Result<ReceiveGroup*> VerbsTransport::AddGroup(uint32_t receives) {
  const uint32_t count = group_count_.load(std::memory_order_relaxed);
  if (count == kMaxGroups) {
    return Status(StatusCode::kResourceExhausted, "too many verbs endpoints");
  }
  const auto most = static_cast<uint64_t>(std::max(device_->limits().max_cqe, 1));
  const uint64_t entries = std::min(uint64_t{receives} * ReceiveGroup::kMembers, most);
  if (entries < receives) {
    return Status(StatusCode::kInvalidArgument,
                  std::to_string(receives) + " receives do not fit a completion queue of " +
                      device_->name() + " (" + std::to_string(most) + ")");
  }
  auto group = std::make_unique<ReceiveGroup>();
  group->capacity = static_cast<uint32_t>(entries);
  group->completions.reset(Lib().ibv.create_cq(device_->context(), static_cast<int>(entries),
                                               group.get(), channel_.get(), 0));
  if (group->completions == nullptr) return ErrnoStatus("creating a completion queue", errno);
  groups_[count] = std::move(group);
  group_count_.store(count + 1, std::memory_order_release);
  return groups_[count].get();
}

Status VerbsTransport::Join(VerbsEndpoint* endpoint, uint32_t receives, ReceiveGroup** group,
                            uint32_t* member) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto take = [&](ReceiveGroup* candidate) {
    if (!candidate->FindPlace(receives, member)) return false;
    *group = candidate;
    candidate->members[*member].receives = receives;
    candidate->members[*member].endpoint.store(endpoint, std::memory_order_seq_cst);
    return true;
  };
  const uint32_t count = group_count_.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < count; ++i) {
    if (take(groups_[i].get())) return Status::Ok();
  }
  Result<ReceiveGroup*> added = AddGroup(receives);
  if (!added.ok()) return added.status();
  take(*added);
  return Status::Ok();
}

void VerbsTransport::Withdraw(ReceiveGroup* group, uint32_t member) {
  group->members[member].endpoint.store(nullptr, std::memory_order_seq_cst);
  gate_.AwaitOutside();
}

void VerbsTransport::Release(ReceiveGroup* group, uint32_t member) {
  std::lock_guard<std::mutex> lock(mutex_);
  // The poll under way may have begun before the queue pair was destroyed: the second next to see
  // the queue empty proves that nothing of this member is left.
  group->members[member].reusable_at = group->drained.load(std::memory_order_acquire) + 2;
}

}  // namespace verbs

const TransportFactory kVerbsTransport = {"verbs", &verbs::VerbsTransport::Probe,
                                          &verbs::VerbsTransport::Create};

}  // namespace rdmabatch
