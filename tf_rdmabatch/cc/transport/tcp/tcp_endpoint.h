// TcpEndpoint: one side of a tcp connection.
#ifndef TF_RDMABATCH_CC_TRANSPORT_TCP_TCP_ENDPOINT_H_
#define TF_RDMABATCH_CC_TRANSPORT_TCP_TCP_ENDPOINT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "tf_rdmabatch/cc/base/unique_fd.h"
#include "tf_rdmabatch/cc/transport/tcp/exports.h"
#include "tf_rdmabatch/cc/transport/tcp/input.h"
#include "tf_rdmabatch/cc/transport/tcp/link.h"
#include "tf_rdmabatch/cc/transport/tcp/output.h"
#include "tf_rdmabatch/cc/transport/tcp/poll_set.h"
#include "tf_rdmabatch/cc/transport/tcp/send_queue.h"
#include "tf_rdmabatch/cc/transport/tcp/watchdog.h"
#include "tf_rdmabatch/cc/transport/transport.h"

namespace rdmabatch::tcp {

Status CheckOptions(const EndpointOptions& options);

class TcpEndpoint final : public Endpoint {
 public:
  // Takes a connection whose other end has proven to be the peer, which may have `peer_reads` reads
  // outstanding. CheckOptions was asked before.
  static Result<std::unique_ptr<Endpoint>> Create(std::shared_ptr<PollSet> poll_set, Stream stream,
                                                  const EndpointOptions& options,
                                                  uint32_t peer_reads);
  ~TcpEndpoint() override;

  size_t Post(Span<const WorkRequest> chain) override;
  size_t Queue(Span<const WorkRequest> chain) override;
  void SendQueued() override { output_.Send(); }
  size_t PollSend(Span<Completion> completions) override;
  // Whatever completes a chain wakes the progress thread: the peer's frames, room in the socket.
  void WantSendEvents(bool) override {}
  uint32_t chains_in_flight() const override { return queue_.chains_in_flight(); }
  uint32_t send_queue_free() const override { return queue_.free(); }
  uint32_t max_inline() const override { return kMaxInline; }

  Result<std::string> Export(const LocalMemory& memory) override;
  Result<RemoteMemory> Import(const std::string& descriptor) override;
  // The progress thread notices the end.
  int control_fd() const override { return -1; }
  Status CheckControl() override { return link_.FailureStatus(); }
  void Close() override;

  // Progress thread, inside the poll set's gate: what epoll says, and its turn.
  void Note(uint32_t events);
  size_t Visit(Span<Completion> completions);

  void CheckPeer(uint32_t since_ms);

  Link& link() { return link_; }
  const Watchdog& watchdog() const { return watchdog_; }
  Output& output() { return output_; }

 private:
  TcpEndpoint(std::shared_ptr<PollSet> poll_set, Stream stream, const EndpointOptions& options,
              uint32_t peer_reads);
  size_t ReportFailure(Span<Completion> completions, uint64_t id, bool* reported);

  const std::shared_ptr<PollSet> poll_set_;
  const uint64_t context_;
  Counters* const counters_;
  Link link_;
  Exports exports_;
  SendQueue queue_;
  Output output_;
  Input input_;
  Watchdog watchdog_;

  bool send_failure_reported_ = false;  // send side

  // Progress thread.
  bool readable_ = false;
  bool unwatched_ = false;
  bool receive_failure_reported_ = false;
};

}  // namespace rdmabatch::tcp

#endif  // TF_RDMABATCH_CC_TRANSPORT_TCP_TCP_ENDPOINT_H_
