// Lane: one endpoint with its slots and bitmaps in both directions. The heart of the engine.
//
// Send side (TrySend, Flush, PostTransfers, Service): any thread; a SpinFlag admits
// one at a time. Receive side (OnImmediate): the engine's progress thread alone. Release, Fail: any
// thread. Nothing here blocks; a full window is an outcome, not a wait. The hot path is in
// lane_fill_datapath.cc, lane_send_datapath.cc and lane_receive_datapath.cc.
#ifndef TF_RDMABATCH_CC_ENGINE_LANE_H_
#define TF_RDMABATCH_CC_ENGINE_LANE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tf_rdmabatch/cc/base/counters.h"
#include "tf_rdmabatch/cc/base/event_count.h"
#include "tf_rdmabatch/cc/base/span.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/engine/message.h"
#include "tf_rdmabatch/cc/engine/options.h"
#include "tf_rdmabatch/cc/engine/wire.h"
#include "tf_rdmabatch/cc/memory/segment.h"
#include "tf_rdmabatch/cc/memory/slot_bitmap.h"
#include "tf_rdmabatch/cc/transport/transport.h"

namespace rdmabatch {

enum class SendOutcome : uint8_t {
  kSent,    // in a slot; announced now or with the chain that is gathering
  kNoSlot,  // every slot is in use: wait for `writable`
  kFailed,  // the lane is broken: see status()
};

// One-sided operations that are posted together and complete together. Owned by the caller, who
// keeps it alive until PostTransfers returned true, or the lane failed and Quiesce returned
// (Connection::Transfer does).
class TransferBatch {
 public:
 private:
  friend class Lane;
  // All guarded by the lane's send flag.
  bool done() const { return posted_all_ && outstanding_ == 0; }

  size_t next_ = 0;
  uint64_t next_offset_ = 0;
  uint32_t outstanding_ = 0;
  bool posted_all_ = false;
};

struct Transfer {
  OpCode op = OpCode::kRead;  // kRead or kWrite
  LocalMemory local;
  uint64_t local_offset = 0;
  RemoteMemory remote;
  uint64_t remote_offset = 0;
  uint64_t bytes = 0;
};

// What a lane reports to.
class LaneHost {
 public:
  virtual ~LaneHost() = default;
  // Progress thread. `payload` is in the slot; header values were checked against the slot.
  virtual Disposition OnLaneMessage(const MessageHeader& header, Span<const uint8_t> payload,
                                    SlotHold hold) = 0;
  // Once, from the thread that noticed, which may be inside the lane's send side: must not call the
  // lane back.
  virtual void OnLaneFailed(const Status& status) = 0;
};

class Lane {
 public:
  struct Setup {
    uint32_t index = 0;  // in its connection
    LaneGeometry mine;   // this side receives into
    LaneGeometry peer;   // this side sends into
    Confirm confirm = Confirm::kBatch;
    LaneHost* host = nullptr;  // outlives the lane
    Transport* transport = nullptr;
  };

  // Allocates and registers the lane's memory. Control path.
  static Result<std::unique_ptr<Lane>> Create(const Setup& setup, const EngineOptions& options);
  ~Lane();

  // Set-up continues in this order: options for the endpoint, the endpoint, this side's descriptor
  // to the peer, and the peer's descriptor here. Only then may the lane be used.
  EndpointOptions MakeEndpointOptions();
  void SetEndpoint(std::unique_ptr<Endpoint> endpoint);
  Result<std::string> ExportSegment();
  Status ImportSegment(const std::string& descriptor);

  // The largest payload that fits in a slot.
  uint32_t max_payload() const {
    return peer_.slot_bytes - sizeof(SlotHeader) - sizeof(MessageHeader);
  }

  // Puts a message (at most max_payload()) into a slot. `more` says that the caller sends again, or
  // flushes, right away; without it a lone message is posted at once.
  SendOutcome TrySend(const OutgoingMessage& message, uint8_t flags, bool more);
  // Posts what gathered with `more`, in-flight chains or not. False when the send queue is full:
  // the progress thread posts then.
  bool Flush();

  // Posts as much of `transfers` as the send queue takes; call again until true: all are complete.
  // Ranges were checked.
  bool PostTransfers(Span<const Transfer> transfers, TransferBatch* batch);

  // Receive side. True when HandleArrivals must follow, once all immediates that came by then were
  // taken: only so is a slot never given back before the immediate that announced it was, which
  // bounds the immediates that can wait (docs/protocol.md, credits).
  bool OnImmediate(uint32_t immediate);
  void HandleArrivals();
  // Work that waits for a completion or a credit; called by the progress thread. True when
  // something was done.
  bool Service();
  // Whether Service has something to do that no arrival will announce.
  bool wants_service() const { return wants_service_.load(std::memory_order_relaxed); }

  // Gives back one hold of a slot. False when the slot is not held.
  bool Release(uint32_t slot);

  // Set once, when both sides are ready: an immediate before that breaks the protocol.
  void Activate() { active_.store(true, std::memory_order_release); }
  // Announcements posted, and (progress thread) those of the peer that were taken.
  uint64_t announced();
  uint64_t batches_taken() const { return batches_taken_; }

  // Marks the lane broken, closes its endpoint, wakes everybody. The first reason stays.
  void Fail(const Status& status);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  Status status() const;

  // After failed(), not from the progress thread: returns once no thread uses a TransferBatch or
  // the memory of its transfers any more, so that both may go.
  void Quiesce();

  // Notified when slots came back, transfers completed, or the lane failed.
  EventCount& writable() { return writable_; }
  // Before waiting on writable(): makes sure the progress thread is woken by completions.
  void WantEvents();
  // The same, and has the peer say when a slot is free.
  void WantSlots();

  Endpoint* endpoint() { return endpoint_.get(); }
  CounterValues counters() const;
  uint64_t memory_bytes() const { return segment_.size() + staging_.size(); }

 private:
  // Holds the send side. What was queued meanwhile goes out when it has been let go.
  class SendSide {
   public:
    explicit SendSide(Lane* lane) : lane_(lane) { lane_->send_flag_.Lock(); }
    ~SendSide() {
      const bool queued = std::exchange(lane_->queued_, false);
      lane_->send_flag_.Unlock();
      if (queued) lane_->endpoint_->SendQueued();
    }
    SendSide(const SendSide&) = delete;
    SendSide& operator=(const SendSide&) = delete;

   private:
    Lane* const lane_;
  };

  explicit Lane(const Setup& setup, const EngineOptions& options);

  uint32_t TakeSlot();
  bool OpenSlot();
  void CloseSlot();
  void Append(const OutgoingMessage& message, uint8_t flags, uint32_t payload);
  uint32_t Compose(uint32_t slot, uint32_t at, const OutgoingMessage& message, uint8_t flags,
                   uint32_t payload) const;
  void CountMessage(uint32_t payload);
  void Stage(uint32_t slot, uint32_t used, uint32_t messages);
  SendOutcome SendLarge(const OutgoingMessage& message, uint8_t flags, uint32_t payload, bool more);
  SendOutcome SendEach(const OutgoingMessage& message, uint8_t flags, uint32_t payload);
  void FlushUnlessBusy(bool more);
  bool busy() const { return announcing_ >= chains_in_flight_; }
  bool FlushLocked();
  void WantEventsLocked();
  bool PostFreedLocked();
  bool PostAcksLocked();
  uint32_t AppendSlots(uint32_t length, uint32_t word);
  uint32_t AppendFreedWords(uint32_t length);
  uint32_t AppendWord(uint32_t length, uint64_t offset, uint64_t value);
  // Everything but op, immediate and inline_data.
  void FillSlotWrite(WorkRequest* request, uint32_t slot) const;
  // False once the lane has failed.
  bool PostChain(Span<const WorkRequest> chain);
  void AbsorbFreed();
  void PollSendLocked();

  void ScanArrived();
  void TakeLone(uint32_t slot);
  bool Announced(uint32_t slot) const;
  bool Consume(uint32_t slot);
  bool ConsumeMessages(const uint8_t* data, uint32_t slot, const SlotHeader& header,
                       uint32_t* holds);
  void Acknowledge(uint32_t slot);
  void ArriveOne(uint32_t slot);
  void AcknowledgedOne(uint32_t slot);
  bool HaveRoom(uint32_t requests);
  bool PostBare(uint32_t immediate);
  void Violate(const char* what);

  const uint8_t* SlotData(uint32_t slot) const {
    return segment_.data() + my_layout_.slots + uint64_t{slot} * mine_.slot_bytes;
  }
  uint8_t* SendSlot(uint32_t slot) const { return send_base_ + uint64_t{slot} * peer_.slot_bytes; }

  const uint32_t index_;
  const LaneGeometry mine_;
  const LaneGeometry peer_;
  const Confirm confirm_;
  const uint32_t window_;
  const uint32_t max_batch_;
  const uint32_t batch_bytes_;
  const uint32_t chains_in_flight_;
  const uint32_t first_index_;
  LaneHost* const host_;
  Transport* const transport_;

  Segment segment_;  // received into: words and slots
  LocalMemory segment_memory_;
  Segment staging_;  // sent from, where the peer's slots cannot be reached directly
  LocalMemory staging_memory_;
  LaneLayout my_layout_;
  LaneLayout peer_layout_;
  RemoteMemory peer_memory_;
  std::unique_ptr<Endpoint> endpoint_;
  Counters counters_;          // written under the send flag
  Counters receive_counters_;  // written by the progress thread; added to counters() by readers

  // Send side, guarded by send_flag_.
  SpinFlag send_flag_;
  bool queued_ = false;  // work requests that SendQueued was not called for
  SlotSender sender_;
  uint8_t* send_base_ = nullptr;
  uint32_t open_slot_ = kNoSlot;
  uint32_t open_used_ = 0;
  uint32_t open_count_ = 0;
  uint32_t closed_slot_ = kNoSlot;  // last
  uint32_t staged_slots_ = 0;
  uint32_t staged_bytes_ = 0;
  uint64_t batch_ = 0;                 // number of the next announcement
  uint32_t announcing_ = 0;            // announcements unperceived, as far as completions tell
  std::vector<uint32_t> used_;         // bytes of each slot
  std::vector<uint32_t> owed_acks_;    // slots to acknowledge one by one; never reallocated
  std::vector<WorkRequest> chain_;     // written once where nothing varies
  std::vector<uint64_t> word_values_;  // what the inline words of the chain are read from

  // Receive side, progress thread.
  SlotReceiver receiver_;
  uint64_t batches_taken_ = 0;    // announcements whose immediate was taken
  uint64_t batches_scanned_ = 0;  // announcements whose slots were looked for
  uint32_t lone_slot_ = kNoSlot;  // that the last announcement consists of
  std::vector<std::atomic<uint32_t>> holds_;

  // From the receive side (or Release) to the send side.
  std::atomic<uint64_t> freed_dirty_{0};  // a bit a word
  std::atomic<bool> freed_notify_{false};

  std::atomic<bool> slots_requested_{false};
  std::atomic<bool> wants_service_{false};
  std::atomic<bool> active_{false};
  std::atomic<bool> failed_{false};
  mutable std::mutex status_mutex_;
  Status status_;
  EventCount writable_;
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_LANE_H_
