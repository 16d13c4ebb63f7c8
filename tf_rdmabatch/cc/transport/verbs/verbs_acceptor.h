// VerbsAcceptor: an rdma_cm listener of its own for one connection attempt.
#ifndef TF_RDMABATCH_CC_TRANSPORT_VERBS_VERBS_ACCEPTOR_H_
#define TF_RDMABATCH_CC_TRANSPORT_VERBS_VERBS_ACCEPTOR_H_

#include <memory>
#include <string>
#include <utility>

#include "tf_rdmabatch/cc/transport/transport.h"
#include "tf_rdmabatch/cc/transport/verbs/cm.h"
#include "tf_rdmabatch/cc/transport/verbs/wire.h"

namespace rdmabatch {
namespace verbs {

class VerbsTransport;

// Takes the one request that shows the random cookie of the offer, and rejects all others. The
// transport must outlive it.
class VerbsAcceptor final : public Acceptor {
 public:
  static Result<std::unique_ptr<Acceptor>> Create(VerbsTransport* transport,
                                                  const std::string& local_ip);

  const std::string& offer() const override { return offer_; }
  Result<std::unique_ptr<Endpoint>> Accept(const EndpointOptions& options,
                                           Deadline deadline) override;

 private:
  // A connection request that was taken: its id, and what the event said, without pointers.
  struct Request {
    CmId id;
    rdma_conn_param param{};
  };

  VerbsAcceptor(VerbsTransport* transport, CmChannel channel, CmId listener, const Offer& offer)
      : transport_(transport),
        channel_(std::move(channel)),
        listener_(std::move(listener)),
        cookie_(offer.cookie),
        offer_(offer.Encode()) {}
  Result<Request> NextRequest(Deadline deadline);

  VerbsTransport* const transport_;
  CmChannel channel_;
  CmId listener_;
  const Cookie cookie_;
  const std::string offer_;
};

}  // namespace verbs
}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_TRANSPORT_VERBS_VERBS_ACCEPTOR_H_
