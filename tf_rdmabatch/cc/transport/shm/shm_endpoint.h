// ShmEndpoint: one side of a shared-memory connection.
#ifndef TF_RDMABATCH_CC_TRANSPORT_SHM_SHM_ENDPOINT_H_
#define TF_RDMABATCH_CC_TRANSPORT_SHM_SHM_ENDPOINT_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/unique_fd.h"
#include "tf_rdmabatch/cc/memory/segment.h"
#include "tf_rdmabatch/cc/transport/shm/layout.h"
#include "tf_rdmabatch/cc/transport/shm/poll_set.h"
#include "tf_rdmabatch/cc/transport/transport.h"

namespace rdmabatch::shm {

// Why an endpoint is broken; one of the constants in shm_endpoint.cc.
struct Failure {
  StatusCode code;
  const char* message;
};

// Three parties, each with members of its own: the send side (Post, PollSend, WantSendEvents), the
// receive side (TakeImmediates, SetSleeping: the progress thread, through the PollSet), and control
// threads (the rest, under `control_mutex_`). They share only `failure_`, which is set once.
class ShmEndpoint final : public Endpoint {
 public:
  // Exchanges hellos over a fresh connection, whose other end has proven to be the peer.
  static Result<std::unique_ptr<Endpoint>> Create(std::shared_ptr<PollSet> poll_set,
                                                  UniqueFd socket, const Offer& offer,
                                                  bool accepting, const EndpointOptions& options,
                                                  Deadline deadline);
  ~ShmEndpoint() override;

  size_t Post(Span<const WorkRequest> chain) override;
  size_t PollSend(Span<Completion> completions) override;
  void WantSendEvents(bool want) override;
  uint32_t chains_in_flight() const override { return last_chain_ - first_chain_; }
  uint32_t send_queue_free() const override { return send_queue_depth_ - in_flight_; }
  // Payloads are always read during Post.
  uint32_t max_inline() const override { return 1u << 30; }

  Result<std::string> Export(const LocalMemory& memory) override;
  Result<RemoteMemory> Import(const std::string& descriptor) override;
  int control_fd() const override { return socket_.get(); }
  Status CheckControl() override;
  void Close() override;

  size_t TakeImmediates(Span<Completion> completions);
  void SetSleeping(uint32_t sleep_number) { own_page_->sleeping.store(sleep_number); }

 private:
  // A chain that was posted and is not yet reported complete.
  struct Chain {
    uint64_t id;
    uint32_t work_requests;
    uint32_t index;  // `head` after its last immediate
    bool announces;  // ends in kWriteImm: complete when the peer's tail reaches `index`
  };
  struct Imported {
    uint8_t* address = nullptr;
    uint64_t bytes = 0;
    bool writable = false;
  };
  // What the peer exported. Mapped when it arrives, so that it holds no descriptor until it is
  // imported.
  struct Exported {
    Region region;
    Result<Segment> segment;
    uint32_t index;  // in imported_, kMaxRegions before Import
  };

  ShmEndpoint(std::shared_ptr<PollSet> poll_set, UniqueFd socket, Segment own, Segment peer,
              UniqueFd peer_event_fd, const EndpointOptions& options, const Hello& peer_hello,
              uint64_t first_region_id);

  // Any thread. The first failure stays, and the peer notices it.
  void Break(const Failure& failure);
  const Failure* failure() const { return failure_.load(std::memory_order_acquire); }
  void Wake();

  bool RoomForImmediate(uint32_t head);
  bool LoadPeerTail();
  bool InReach(const WorkRequest& request) const;
  void PublishHead(uint32_t head);
  size_t ReportFailure(Span<Completion> completions, uint64_t id, bool* reported);

  // Takes the regions that have arrived. Needs control_mutex_.
  void TakeArrived();
  Status FailureStatus() const;

  const std::shared_ptr<PollSet> poll_set_;
  const UniqueFd socket_;
  const Segment own_segment_;
  const Segment peer_segment_;
  const UniqueFd peer_event_fd_;
  ControlPage* const own_page_;
  ControlPage* const peer_page_;
  Counters* const counters_;
  std::atomic<const Failure*> failure_{nullptr};

  // Send side.
  alignas(kLine) uint32_t head_;  // published in peer_page_
  uint32_t peer_tail_;            // last seen there
  const uint32_t peer_limit_;     // immediates that may wait at the peer
  const uint32_t peer_mask_;
  uint32_t last_woken_ = 0;  // the peer's sleep that was ended
  uint32_t want_number_ = 0;
  const uint32_t send_queue_depth_;
  uint32_t in_flight_ = 0;  // work requests of chains_
  uint32_t first_chain_ = 0;
  uint32_t last_chain_ = 0;
  const uint32_t chain_mask_;
  bool send_failure_reported_ = false;
  const std::unique_ptr<Chain[]> chains_;
  // Entries are written once, by Import before it returns their index.
  const std::unique_ptr<Imported[]> imported_;

  // Receive side.
  alignas(kLine) uint32_t tail_;  // published in own_page_
  const uint32_t limit_;
  const uint32_t mask_;
  uint32_t last_wanted_ = 0;  // the peer's want_tail that was served
  bool receive_failure_reported_ = false;
  const uint64_t context_;

  // Control threads.
  alignas(kLine) std::mutex control_mutex_;
  uint32_t exported_count_ = 0;
  uint64_t next_region_id_;
  uint32_t imported_count_ = 0;
  std::map<uint64_t, Exported> peers_exports_;  // by region id
};

extern const Failure kClosedHere;
extern const Failure kPeerGone;
extern const Failure kCorruptRing;
extern const Failure kBadMessage;
extern const Failure kLostDescriptors;
extern const Failure kOutOfReach;

}  // namespace rdmabatch::shm

#endif  // TF_RDMABATCH_CC_TRANSPORT_SHM_SHM_ENDPOINT_H_
