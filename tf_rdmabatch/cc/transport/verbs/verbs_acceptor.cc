#include "tf_rdmabatch/cc/transport/verbs/verbs_acceptor.h"

#include <sys/random.h>

#include <cerrno>
#include <string_view>

#include "tf_rdmabatch/cc/base/log.h"
#include "tf_rdmabatch/cc/transport/verbs/address.h"
#include "tf_rdmabatch/cc/transport/verbs/verbs_endpoint.h"
#include "tf_rdmabatch/cc/transport/verbs/verbs_transport.h"

namespace rdmabatch {
namespace verbs {
namespace {

constexpr int kBacklog = 16;

bool HasCookie(const rdma_conn_param& param, const Cookie& cookie) {
  if (param.private_data == nullptr) return false;
  Result<ConnectRequest> request =
      ConnectRequest::Parse({static_cast<const char*>(param.private_data), param.private_data_len});
  return request.ok() && request->cookie == cookie;
}

}  // namespace

Result<std::unique_ptr<Acceptor>> VerbsAcceptor::Create(VerbsTransport* transport,
                                                        const std::string& local_ip) {
  Result<SocketAddress> preferred = SocketAddress::Parse(local_ip);
  if (!preferred.ok()) return preferred.status();
  Result<CmChannel> channel = CmChannel::Create();
  if (!channel.ok()) return channel.status();
  Result<CmId> listener = transport->device().Bind(&*channel, *preferred, transport->ports());
  if (!listener.ok()) return listener.status();
  if (Lib().cm.listen(listener->get(), kBacklog) != 0) return ErrnoStatus("rdma_listen", errno);

  Offer offer;
  offer.fabric = transport->device().fabric();
  SocketAddress((*listener)->route.addr.src_addr).FillOffer(&offer);
  if (getrandom(offer.cookie.data(), offer.cookie.size(), 0) !=
      static_cast<ssize_t>(offer.cookie.size())) {
    return ErrnoStatus("getrandom", errno);
  }
  return std::unique_ptr<Acceptor>(
      new VerbsAcceptor(transport, std::move(*channel), std::move(*listener), offer));
}

Result<VerbsAcceptor::Request> VerbsAcceptor::NextRequest(Deadline deadline) {
  for (;;) {
    Result<CmEvent> event = channel_.Next(deadline);
    if (!event.ok()) return event.status();
    const rdma_cm_event& got = **event;
    if (got.event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
      return Status(StatusCode::kUnavailable, "the RDMA device was removed");
    }
    if (got.event != RDMA_CM_EVENT_CONNECT_REQUEST) continue;
    Request request;
    request.id.reset(got.id);
    request.param = got.param.conn;
    const bool wanted = HasCookie(got.param.conn, cookie_);
    request.param.private_data = nullptr;
    event->reset();
    if (wanted) return request;
    Lib().cm.reject(request.id.get(), nullptr, 0);
    Log(LogLevel::kWarning,
        "verbs: refused a connection request without the cookie of the offer, from " +
            SocketAddress(request.id->route.addr.dst_addr).ToString());
    if (deadline.expired()) return Status(StatusCode::kDeadlineExceeded, "only bad requests");
  }
}

Result<std::unique_ptr<Endpoint>> VerbsAcceptor::Accept(const EndpointOptions& options,
                                                        Deadline deadline) {
  if (listener_ == nullptr) return Status(StatusCode::kFailedPrecondition, "accepted already");
  Result<Request> request = NextRequest(deadline);
  if (!request.ok()) return request.status();
  listener_.reset();
  // The connection outlives this listener, so it needs a channel of its own. A request that is
  // dropped on the way is rejected by the kernel.
  Result<CmChannel> channel = CmChannel::Create();
  if (!channel.ok()) return channel.status();
  RDMABATCH_RETURN_IF_ERROR(channel->Adopt(request->id.get()));
  if (request->id->verbs != transport_->device().context()) {
    return Status(StatusCode::kUnavailable, "the request came through another device");
  }
  RDMABATCH_RETURN_IF_ERROR(transport_->device().SetAckTimeout(request->id.get()));
  Result<std::unique_ptr<VerbsEndpoint>> endpoint =
      VerbsEndpoint::Create(transport_, std::move(*channel), std::move(request->id), options);
  if (!endpoint.ok()) return endpoint.status();
  RDMABATCH_RETURN_IF_ERROR((*endpoint)->Accept(request->param, deadline));
  return std::unique_ptr<Endpoint>(std::move(*endpoint));
}

}  // namespace verbs
}  // namespace rdmabatch
