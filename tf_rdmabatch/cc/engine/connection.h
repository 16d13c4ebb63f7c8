// Connection: two engines, one or more lanes. What programs send, read and write through.
#ifndef TF_RDMABATCH_CC_ENGINE_CONNECTION_H_
#define TF_RDMABATCH_CC_ENGINE_CONNECTION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/counters.h"
#include "tf_rdmabatch/cc/base/export.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/base/timed_lock.h"
#include "tf_rdmabatch/cc/engine/bootstrap.h"
#include "tf_rdmabatch/cc/engine/bytes.h"
#include "tf_rdmabatch/cc/engine/lane.h"
#include "tf_rdmabatch/cc/engine/message.h"
#include "tf_rdmabatch/cc/engine/options.h"
#include "tf_rdmabatch/cc/engine/reassembly.h"
#include "tf_rdmabatch/cc/transport/transport.h"

namespace rdmabatch {

class Engine;

// Registered memory of this process. Shared: it stays registered while anybody holds it.
class RDMABATCH_EXPORT Region {
 public:
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  uint8_t* data() const { return segment_.data(); }
  uint64_t size() const { return segment_.size(); }
  Access access() const { return access_; }
  // Null when the region is not registered with `transport`.
  const LocalMemory* RegisteredWith(const Transport* transport) const {
    for (const auto& [owner, memory] : registrations_) {
      if (owner.get() == transport) return &memory;
    }
    return nullptr;
  }

 private:
  friend class Engine;
  Region() = default;

  Segment segment_;
  Access access_ = Access::kLocal;
  std::vector<std::pair<std::shared_ptr<Transport>, LocalMemory>>
      registrations_;  // one a transport
};

// A peer's region as a connection sees it, one RemoteMemory a lane. Valid while the connection
// lives.
struct RemoteRegion {
  std::vector<RemoteMemory> lanes;
  uint64_t bytes = 0;
  bool readable = false;
  bool writable = false;
  // Where this process can reach it itself (shared memory), or null.
  uint8_t* direct() const { return lanes.empty() ? nullptr : lanes[0].direct; }
};

// A one-sided operation between a local and a remote region.
struct RegionTransfer {
  const Region* local = nullptr;
  uint64_t local_offset = 0;
  const RemoteRegion* remote = nullptr;
  uint64_t remote_offset = 0;
  uint64_t bytes = 0;
};

// What the peer said of itself; strings were checked (printable, at most 128 bytes).
struct PeerInfo {
  std::string name;     // of the task
  std::string address;  // ip:port
  std::string host;
  uint32_t pid = 0;
  // "worker:0 (10.0.0.1:4711, pid 12)": for messages.
  std::string ToString() const;
};

// Thread-safe. Shared ownership; the engine keeps a connection until it is closed or failed.
class RDMABATCH_EXPORT Connection : public LaneHost,
                                    public std::enable_shared_from_this<Connection> {
 public:
  ~Connection() override;

  // Copies the message into a slot (more than one where it is larger) and returns; waits for slots
  // until the deadline. `more` says that the caller sends again, or calls Flush, right away, so
  // that both share a chain. kDeadlineExceeded: nothing of it was sent. Once a part of a message is
  // in a slot, the deadline is 30 s for each other one, after which the connection is failed.
  Status Send(const OutgoingMessage& message, Deadline deadline, bool more = false);
  // The same without a wait; kResourceExhausted when no slot is free. At most max_payload() bytes.
  Status TrySend(const OutgoingMessage& message, bool more = false);
  // Posts what was sent with `more`.
  void Flush();
  uint32_t max_payload() const { return lanes_[0]->max_payload(); }

  // Reads or writes regions in chains and returns when all of it is done. A range out of bounds or
  // without the right is kOutOfRange / kPermissionDenied before anything is posted. One that misses
  // its deadline fails the connection, since the device may still be moving bytes.
  Status Read(Span<const RegionTransfer> transfers, Deadline deadline);
  Status Write(Span<const RegionTransfer> transfers, Deadline deadline);

  // Makes a region reachable for the peer: send the bytes to it in a message; it imports them.
  // Control path.
  Result<std::string> Export(const Region& region);
  Result<RemoteRegion> Import(const std::string& descriptor);

  // Gives back a message that a sink kept (Disposition::kHold). Any thread.
  void Release(SlotHold hold);

  // Ends the connection once the peer has perceived what was sent, or a second later; the peer sees
  // a close, not a death. Idempotent. Not from the engine's own threads.
  void Close();
  bool closed() const { return closed_.load(std::memory_order_acquire); }
  // OK while the connection lives, else why it ended, naming the peer.
  Status status() const;

  uint64_t id() const { return id_; }  // unique in this process
  const PeerInfo& peer() const { return peer_; }
  const std::string& transport() const { return transport_name_; }
  // Why this transport: for logs.
  const std::string& choice() const { return choice_; }
  Confirm confirm() const { return confirm_; }
  CounterValues counters() const;
  uint64_t memory_bytes() const;

  // Counts a copy out of a region that this process reaches itself (RemoteRegion::direct).
  void CountDirectRead(uint64_t bytes);

  // For the engine's own use: any value of the sink's, not owned.
  void set_context(void* context) { context_.store(context, std::memory_order_release); }
  void* context() const { return context_.load(std::memory_order_acquire); }

 private:
  friend class Engine;
  friend class Handshake;
  friend class ControlThread;
  friend class ProgressThread;
  explicit Connection(Engine* engine);

  static constexpr size_t kMaxDescriptorBytes = 256;
  static constexpr size_t kMaxHeadBytes = 256;
  static constexpr std::string_view kBye = "bye";
  static constexpr size_t kMaxByeBytes = 256;
  // A close waits so long for the peer to perceive what was sent, a shutdown for all peers
  // together.
  static constexpr double kCloseSeconds = 1;

  Disposition OnLaneMessage(const MessageHeader& header, Span<const uint8_t> payload,
                            SlotHold hold) override;
  void OnLaneFailed(const Status& status) override;
  Disposition OnFragment(const MessageHeader& header, Span<const uint8_t> payload);
  Status SendFragments(const OutgoingMessage& message, Deadline deadline);
  Status SendPiece(Lane& lane, const OutgoingMessage& piece, uint8_t flags, bool more,
                   Deadline deadline);
  Status TransferAll(Span<const RegionTransfer> transfers, OpCode op, Deadline deadline);
  Status CheckTransfer(const RegionTransfer& transfer, OpCode op) const;
  Status RunTransfers(Span<const Transfer> transfers, Lane& lane, Deadline deadline);
  Lane& PickLane() {
    return *lanes_[lanes_.size() == 1
                       ? 0
                       : next_lane_.fetch_add(1, std::memory_order_relaxed) % lanes_.size()];
  }
  // Progress thread: lanes that wait for completions.
  bool wants_service() const;
  bool Serve();
  // Both sides are ready, and the sink knows the connection: from now on it learns the end. Not OK
  // when the connection was closed, or a lane has failed, before.
  Status Activate();
  // The peer is ready: this side may send.
  void SetUsable() { usable_.store(true, std::memory_order_release); }
  bool usable() const { return usable_.load(std::memory_order_acquire); }
  // The handshake is over: the control thread may read the bootstrap connection.
  void SetEstablished() { established_.store(true, std::memory_order_release); }
  bool established() const { return established_.load(std::memory_order_acquire); }
  // The control thread has seen the end and need not look again.
  void SetEnding() { ending_.store(true, std::memory_order_relaxed); }
  bool ending() const { return ending_.load(std::memory_order_relaxed); }
  // The two halves of Close: says good-bye, and waits until the peer has answered.
  void BeginClose(Deadline deadline);
  void FinishClose(Deadline deadline);
  // Close without the wait, where nobody watches for the answer.
  void Leave(Deadline deadline);
  // A good-bye has the number of announcements that its side made on each lane.
  std::string ByeFrame();
  Result<std::vector<uint64_t>> ParseBye(std::string_view frame) const;
  // Progress thread: whether as many announcements of the peer were handled on each lane.
  bool Drained(const std::vector<uint64_t>& announced) const;
  // What a call on a failed lane returns.
  Status FailureOf(const Lane& lane) const;
  Status Named(const Status& status) const;
  // Fails every lane and tells the sink, once. Not from inside a lane.
  void Fail(const Status& status);

  Engine* const engine_;
  const uint64_t id_;
  const uint64_t max_message_bytes_;
  MessageSink* const sink_;
  PeerInfo peer_;
  std::string transport_name_;
  std::string choice_;
  Confirm confirm_ = Confirm::kBatch;
  std::shared_ptr<Transport> transport_;
  std::unique_ptr<BootstrapSocket> bootstrap_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::atomic<uint32_t> next_lane_{0};
  std::atomic<void*> context_{nullptr};

  // Copies that bypass the lanes (shared memory), from any thread.
  std::atomic<uint64_t> direct_reads_{0};
  std::atomic<uint64_t> direct_read_bytes_{0};
  std::atomic<uint64_t> direct_writes_{0};
  std::atomic<uint64_t> direct_write_bytes_{0};

  Reassembly reassembly_;  // progress thread
  TimedLock fragmenting_;
  uint64_t next_message_ = 0;  // fragmenting_

  std::atomic<bool> active_{false};
  std::atomic<bool> usable_{false};
  std::atomic<bool> established_{false};
  std::atomic<bool> ending_{false};
  std::atomic<bool> closing_{false};
  std::atomic<bool> closed_{false};
  mutable std::mutex status_mutex_;
  Status status_;
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_CONNECTION_H_
