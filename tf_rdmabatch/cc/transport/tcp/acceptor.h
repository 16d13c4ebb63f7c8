// TcpAcceptor: a listener of its own for one connection attempt.
#ifndef TF_RDMABATCH_CC_TRANSPORT_TCP_ACCEPTOR_H_
#define TF_RDMABATCH_CC_TRANSPORT_TCP_ACCEPTOR_H_

#include <memory>
#include <string>
#include <utility>

#include "tf_rdmabatch/cc/base/unique_fd.h"
#include "tf_rdmabatch/cc/transport/tcp/poll_set.h"
#include "tf_rdmabatch/cc/transport/tcp/socket.h"
#include "tf_rdmabatch/cc/transport/tcp/wire.h"
#include "tf_rdmabatch/cc/transport/transport.h"

namespace rdmabatch::tcp {

// Takes the one connection that shows the secret of the offer. Others cost a place among a few, in
// which they have a second, and nothing is allocated for them; the oldest goes when more come.
class TcpAcceptor final : public Acceptor {
 public:
  static Result<std::unique_ptr<Acceptor>> Create(std::shared_ptr<PollSet> poll_set,
                                                  const std::string& local_ip,
                                                  const TransportOptions& options);

  const std::string& offer() const override { return offer_bytes_; }
  Result<std::unique_ptr<Endpoint>> Accept(const EndpointOptions& options,
                                           Deadline deadline) override;

 private:
  TcpAcceptor(std::shared_ptr<PollSet> poll_set, UniqueFd listener, const Offer& offer)
      : poll_set_(std::move(poll_set)),
        listener_(std::move(listener)),
        offer_(offer),
        offer_bytes_(Pack(offer)) {}

  const std::shared_ptr<PollSet> poll_set_;
  UniqueFd listener_;
  const Offer offer_;
  const std::string offer_bytes_;
};

// The connecting half. `tls`: whether this side wants it, as the offer has to.
Result<std::unique_ptr<Endpoint>> ConnectEndpoint(std::shared_ptr<PollSet> poll_set,
                                                  const std::string& offer, bool tls,
                                                  const EndpointOptions& options,
                                                  Deadline deadline);

}  // namespace rdmabatch::tcp

#endif  // TF_RDMABATCH_CC_TRANSPORT_TCP_ACCEPTOR_H_
