// A transport without a device, for tests of what is above it: writes are carried out when they are
// posted, everything is recorded, and the test says when chains complete. Peers cannot reach each
// other's memory directly, so that the engine takes the same path as on a device. One thread.
#ifndef TF_RDMABATCH_TESTS_CC_ENGINE_FAKE_ENDPOINT_H_
#define TF_RDMABATCH_TESTS_CC_ENGINE_FAKE_ENDPOINT_H_

#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_rdmabatch/cc/base/unique_fd.h"
#include "tf_rdmabatch/cc/transport/transport.h"

namespace rdmabatch::testing {

class FakeTransport : public Transport {
 public:
  const char* name() const override { return "fake"; }
  bool reaches_other_hosts() const override { return true; }
  Result<LocalMemory> RegisterMemory(const Segment& segment, Access access) override {
    LocalMemory memory;
    memory.address = segment.data();
    memory.bytes = segment.size();
    memory.local_key = memory.remote_key = ++keys_;
    memory.access = access;
    return memory;
  }
  void Deregister(const LocalMemory&) override {}
  Result<std::unique_ptr<Acceptor>> Listen(const std::string&) override {
    return Status(StatusCode::kUnimplemented, "endpoints are linked by the test");
  }
  Result<std::unique_ptr<Endpoint>> Connect(const std::string&, const EndpointOptions&,
                                            Deadline) override {
    return Status(StatusCode::kUnimplemented, "endpoints are linked by the test");
  }
  size_t PollReceive(Span<Completion> completions) override {
    const size_t count = std::min(completions.size(), arrivals.size());
    for (size_t i = 0; i < count; ++i) {
      completions[i] = arrivals.front();
      arrivals.pop_front();
    }
    return count;
  }
  int event_fd() const override { return never_.get(); }
  void PrepareSleep() override {}
  void FinishSleep() override {}

  std::deque<Completion> arrivals;

 private:
  const UniqueFd never_{eventfd(0, EFD_CLOEXEC)};
  uint32_t keys_ = 0;
};

class FakeEndpoint : public Endpoint {
 public:
  FakeEndpoint(FakeTransport* transport, const EndpointOptions& options)
      : transport_(transport), options_(options) {}

  static void Link(FakeEndpoint* a, FakeEndpoint* b) {
    a->peer_ = b;
    b->peer_ = a;
  }

  size_t Post(Span<const WorkRequest> chain) override {
    if (closed_) return 0;
    const size_t accepted = std::min<size_t>(chain.size(), send_queue_free());
    if (accepted == 0) return 0;
    for (size_t i = 0; i < accepted; ++i) CarryOut(chain[i]);
    posted.insert(posted.end(), chain.begin(), chain.begin() + accepted);
    outstanding_ += static_cast<uint32_t>(accepted);
    chains_.push_back({chain[accepted - 1].id, static_cast<uint32_t>(accepted)});
    options_.counters->doorbells.Add(1);
    options_.counters->work_requests.Add(accepted);
    return accepted;
  }

  size_t PollSend(Span<Completion> completions) override {
    size_t count = 0;
    for (; count < completions.size() && !chains_.empty(); ++count) {
      if (hold_completions && completable == 0) break;
      if (hold_completions) --completable;
      completions[count] = Completion{};
      completions[count].id = chains_.front().first;
      outstanding_ -= chains_.front().second;
      chains_.pop_front();
    }
    options_.counters->send_completions.Add(count);
    return count;
  }

  void WantSendEvents(bool want) override {
    wants_events = want;
    if (want && on_want) on_want();
  }
  uint32_t chains_in_flight() const override { return static_cast<uint32_t>(chains_.size()); }
  uint32_t send_queue_free() const override { return options_.send_queue_depth - outstanding_; }
  uint32_t max_inline() const override { return 128; }

  Result<std::string> Export(const LocalMemory& memory) override {
    exported.push_back(memory);
    return std::string(reinterpret_cast<const char*>(&memory.address), sizeof(memory.address));
  }
  Result<RemoteMemory> Import(const std::string& descriptor) override {
    for (const LocalMemory& memory : peer_->exported) {
      if (std::memcmp(&memory.address, descriptor.data(), sizeof(memory.address)) != 0) continue;
      return RemoteMemory{reinterpret_cast<uint64_t>(memory.address), memory.bytes,
                          memory.remote_key, nullptr};
    }
    return Status(StatusCode::kDataLoss, "not exported");
  }
  int control_fd() const override { return -1; }
  Status CheckControl() override { return Status::Ok(); }
  void Close() override { closed_ = true; }

  bool closed() const { return closed_; }
  uint64_t context() const { return options_.context; }

  std::vector<WorkRequest> posted;
  std::vector<LocalMemory> exported;
  bool hold_completions = false;
  size_t completable = 0;  // chains that may complete while they are held
  bool wants_events = false;
  std::function<void()> on_want;  // called when a wish to be woken is made
  bool out_of_reach = false;      // a work request was outside of the peer's memory

 private:
  void CarryOut(const WorkRequest& request) {
    if (request.length != 0) {
      if (!InReach(request)) {
        out_of_reach = true;
        return;
      }
      auto* remote = reinterpret_cast<uint8_t*>(request.remote);
      if (request.op == OpCode::kRead) {
        std::memcpy(request.local, remote, request.length);
      } else {
        std::memcpy(remote, request.local, request.length);
      }
    }
    if (request.op != OpCode::kWriteImm || peer_ == nullptr) return;
    Completion arrival;
    arrival.id = peer_->context();
    arrival.immediate = request.immediate;
    peer_->transport_->arrivals.push_back(arrival);
    peer_->options_.counters->receive_completions.Add(1);
  }

  bool InReach(const WorkRequest& request) const {
    if (peer_ == nullptr) return false;
    for (const LocalMemory& memory : peer_->exported) {
      const uint64_t offset = request.remote - reinterpret_cast<uint64_t>(memory.address);
      if (offset < memory.bytes && request.length <= memory.bytes - offset) {
        return memory.remote_key == request.remote_key;
      }
    }
    return false;
  }

  FakeTransport* const transport_;
  const EndpointOptions options_;
  FakeEndpoint* peer_ = nullptr;
  std::deque<std::pair<uint64_t, uint32_t>> chains_;  // id, work requests
  uint32_t outstanding_ = 0;
  bool closed_ = false;
};

}  // namespace rdmabatch::testing

#endif  // TF_RDMABATCH_TESTS_CC_ENGINE_FAKE_ENDPOINT_H_
