// The RDMA device of a transport: which one, its limits, and at which addresses rdma_cm finds it.
#ifndef TF_RDMABATCH_CC_TRANSPORT_VERBS_DEVICE_H_
#define TF_RDMABATCH_CC_TRANSPORT_VERBS_DEVICE_H_

#include <memory>
#include <string>

#include "tf_rdmabatch/cc/base/listen.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/transport/verbs/address.h"
#include "tf_rdmabatch/cc/transport/verbs/cm.h"
#include "tf_rdmabatch/cc/transport/verbs/handles.h"

namespace rdmabatch {
namespace verbs {

// Immutable once opened, so usable by any thread. Outlives everything made from its context.
class Device {
 public:
  // The device that TF_RDMABATCH_DEVICE in the environment names (`rxe0`, `mlx5_0`), else the
  // first one with an active port. kUnavailable says why there is none and what to do about it.
  static Result<std::unique_ptr<Device>> Open();

  const char* name() const;
  ibv_context* context() const { return context_; }
  const ibv_device_attr& limits() const { return limits_; }
  Fabric fabric() const { return fabric_; }

  // How many bytes a work request may carry inline: what to ask create_qp for.
  uint32_t max_inline() const;
  // READs under way at once, in either direction.
  uint8_t max_reads() const;

  // An id on `channel`, bound to a port of this device, one of `ports`: at `preferred`, if the
  // device has that address, else at another of its addresses. kAlreadyExists: all are in use.
  Result<CmId> Bind(CmChannel* channel, SocketAddress preferred,
                    const PortRange& ports = PortRange()) const;
  // An id on `channel` whose route to `peer` leaves through this device. Blocks up to `deadline`.
  Result<CmId> Resolve(CmChannel* channel, SocketAddress peer, Deadline deadline) const;
  // For an id before rdma_accept: how soon its queue pair notices a dead peer. Resolve does it for
  // the connecting side.
  Status SetAckTimeout(rdma_cm_id* id) const;

 private:
  Device(DeviceList devices, ibv_context* context, const ibv_device_attr& limits);

  // A bound id, or null when `address` is not of this device.
  Result<CmId> TryBind(CmChannel* channel, SocketAddress address, const PortRange& ports) const;
  // kNotFound when the address resolves to another device.
  Status ResolveAddress(CmChannel* channel, rdma_cm_id* id, sockaddr* source, SocketAddress* peer,
                        Deadline deadline) const;

  DeviceList devices_;
  ibv_context* context_;
  ibv_device_attr limits_;
  Fabric fabric_;
};

}  // namespace verbs
}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_TRANSPORT_VERBS_DEVICE_H_
