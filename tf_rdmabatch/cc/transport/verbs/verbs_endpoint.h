// VerbsEndpoint: one RC queue pair, connected by rdma_cm.
#ifndef TF_RDMABATCH_CC_TRANSPORT_VERBS_VERBS_ENDPOINT_H_
#define TF_RDMABATCH_CC_TRANSPORT_VERBS_VERBS_ENDPOINT_H_

#include <atomic>
#include <memory>
#include <string>

#include "tf_rdmabatch/cc/transport/transport.h"
#include "tf_rdmabatch/cc/transport/verbs/cm.h"
#include "tf_rdmabatch/cc/transport/verbs/handles.h"
#include "tf_rdmabatch/cc/transport/verbs/receive_queue.h"
#include "tf_rdmabatch/cc/transport/verbs/send_queue.h"

namespace rdmabatch {
namespace verbs {

class VerbsTransport;

// A failure is noted once, by whoever meets it first (send side, progress thread, control thread),
// and then reported once on each side. Destroying an endpoint needs no poll by anyone: it leaves
// its receive group, waits for a poll under way (PollGate) and frees everything in the calling
// thread.
class VerbsEndpoint final : public Endpoint {
 public:
  // Takes an id that has an address on the transport's device and reports to `channel`, and gives
  // it a queue pair with all receives posted. `transport` must outlive the endpoint.
  static Result<std::unique_ptr<VerbsEndpoint>> Create(VerbsTransport* transport, CmChannel channel,
                                                       CmId id, const EndpointOptions& options);
  ~VerbsEndpoint() override;

  // The two ways to get connected; block up to `deadline`.
  Status Connect(const Cookie& cookie, Deadline deadline);
  Status Accept(const rdma_conn_param& request, Deadline deadline);

  size_t Post(Span<const WorkRequest> chain) override;
  size_t PollSend(Span<Completion> completions) override;
  void WantSendEvents(bool want) override;
  uint32_t chains_in_flight() const override { return send_.chains_in_flight(); }
  uint32_t send_queue_free() const override { return send_.free(); }
  uint32_t max_inline() const override { return max_inline_; }
  Result<std::string> Export(const LocalMemory& memory) override;
  Result<RemoteMemory> Import(const std::string& descriptor) override;
  int control_fd() const override { return channel_.fd(); }
  Status CheckControl() override;
  void Close() override;

  // Notes why the endpoint is broken (a static string; the first one counts), and ends the
  // connection, which also wakes a sleeping progress thread. Thread-safe.
  void Break(const char* reason);

  // Of the progress thread, inside the gate.
  ReceiveQueue* receives() { return receives_.get(); }
  const EndpointOptions& options() const { return options_; }
  // Closed, or its failure was reported: no arrival is to be delivered any more.
  bool is_silent() const {
    return receive_failure_reported_ || closed_.load(std::memory_order_relaxed);
  }
  // Fills the one failing completion of the receive side, if it is due.
  bool TakeReceiveFailure(Completion* completion);
  bool wants_send_events() const { return want_send_events_.load(std::memory_order_seq_cst); }
  // Requests an event from the send completion queue.
  void ArmSend();

 private:
  VerbsEndpoint(VerbsTransport* transport, CmChannel channel, CmId id,
                const EndpointOptions& options);
  Status CreateQueues();
  Status CreateQueuePair(ReceiveGroup* group);
  Status FinishConnecting(const char* what, Deadline deadline);
  void Disconnect();

  VerbsTransport* const transport_;
  const EndpointOptions options_;
  CmChannel channel_;
  CmId id_;
  CompletionQueue send_completions_;
  std::unique_ptr<ReceiveQueue> receives_;
  ReceiveGroup* group_ = nullptr;  // once joined
  uint32_t member_ = 0;
  QueuePair queue_pair_;
  uint32_t max_inline_ = 0;
  SendQueue send_;

  std::atomic<const char*> broken_{nullptr};
  std::atomic<bool> closed_{false};
  std::atomic<bool> disconnected_{false};
  std::atomic<bool> want_send_events_{false};
  bool send_failure_reported_ = false;     // of the send side
  bool receive_failure_reported_ = false;  // of the progress thread
};

}  // namespace verbs
}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_TRANSPORT_VERBS_VERBS_ENDPOINT_H_
