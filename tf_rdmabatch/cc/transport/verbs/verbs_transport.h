// VerbsTransport: one device, one protection domain, one completion channel, many endpoints.
#ifndef TF_RDMABATCH_CC_TRANSPORT_VERBS_VERBS_TRANSPORT_H_
#define TF_RDMABATCH_CC_TRANSPORT_VERBS_VERBS_TRANSPORT_H_

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "tf_rdmabatch/cc/transport/poll_gate.h"
#include "tf_rdmabatch/cc/transport/transport.h"
#include "tf_rdmabatch/cc/transport/verbs/device.h"
#include "tf_rdmabatch/cc/transport/verbs/handles.h"
#include "tf_rdmabatch/cc/transport/verbs/receive_queue.h"

namespace rdmabatch {
namespace verbs {

// Outlives its endpoints and acceptors, and what it registered.
class VerbsTransport final : public Transport {
 public:
  static Status Probe();
  static Result<std::unique_ptr<Transport>> Create(const TransportOptions& options);

  const char* name() const override { return "verbs"; }
  Result<LocalMemory> RegisterMemory(const Segment& segment, Access access) override;
  void Deregister(const LocalMemory& memory) override;
  Result<std::unique_ptr<Acceptor>> Listen(const std::string& local_ip) override;
  Result<std::unique_ptr<Endpoint>> Connect(const std::string& offer,
                                            const EndpointOptions& options,
                                            Deadline deadline) override;
  size_t PollReceive(Span<Completion> completions) override;
  int event_fd() const override { return channel_->fd; }
  void PrepareSleep() override;
  void FinishSleep() override;

  const Device& device() const { return *device_; }
  const PortRange& ports() const { return options_.ports; }
  ibv_pd* protection_domain() const { return protection_domain_.get(); }
  ibv_comp_channel* completion_channel() const { return channel_.get(); }

  // For endpoints, from any thread. Join finds room for `receives` completions in a receive group,
  // a new one if need be, and makes the endpoint known to the progress thread. Withdraw hides it
  // again and returns when the progress thread does not use it any more. Release gives its place
  // back; after its queue pair is gone.
  Status Join(VerbsEndpoint* endpoint, uint32_t receives, ReceiveGroup** group, uint32_t* member);
  void Withdraw(ReceiveGroup* group, uint32_t member);
  void Release(ReceiveGroup* group, uint32_t member);
  // An endpoint broke: PollReceive has something to report.
  void NoteBroken() { broken_news_.store(true, std::memory_order_release); }
  bool sleeping() const { return sleeping_.load(std::memory_order_seq_cst); }

 private:
  static constexpr uint32_t kMaxGroups = 256;

  VerbsTransport(const TransportOptions& options, std::unique_ptr<Device> device,
                 ProtectionDomain protection_domain, CompletionChannel channel);
  Result<ReceiveGroup*> AddGroup(uint32_t receives);

  // Of the progress thread, inside the gate.
  size_t PollGroup(ReceiveGroup* group, Span<Completion> completions, bool* drained);
  bool TakeArrival(VerbsEndpoint* endpoint, const ibv_wc& completion, Completion* out);
  size_t ReportBroken(Span<Completion> completions);
  template <typename Visit>
  void ForEachEndpoint(Visit&& visit);

  const TransportOptions options_;
  const std::unique_ptr<Device> device_;
  const ProtectionDomain protection_domain_;
  const CompletionChannel channel_;

  std::mutex mutex_;  // guards the places of the groups, and adding groups
  // Only ever added to, so the progress thread needs no more than the count.
  std::array<std::unique_ptr<ReceiveGroup>, kMaxGroups> groups_;
  std::atomic<uint32_t> group_count_{0};
  uint32_t first_group_ = 0;  // of the progress thread: where the next poll begins

  PollGate gate_;
  std::atomic<bool> broken_news_{false};
  std::atomic<bool> sleeping_{false};
};

}  // namespace verbs
}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_TRANSPORT_VERBS_VERBS_TRANSPORT_H_
