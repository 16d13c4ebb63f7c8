// The parts of ParameterServer.
//
// Who owns a block. Under kBsp the progress thread accumulates into a block of the step that the
// block is at, without a lock, until every contributor's bit is set; then the block is Collect's,
// which takes it, replays what was held for the next step, and opens that step. Under kAsp the
// block's flag says who.
//
// Locks: `collect` and `publish` are held by one application thread each, for as long as the call
// takes. All others are held for moments, and never while a connection is called that could report
// its end, except that `members` may be held then: OnClosed takes only the task queue's mutex.
#ifndef TF_RDMABATCH_CC_ENGINE_STORE_SERVER_H_
#define TF_RDMABATCH_CC_ENGINE_STORE_SERVER_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tf_rdmabatch/cc/base/counters.h"
#include "tf_rdmabatch/cc/base/event_count.h"
#include "tf_rdmabatch/cc/base/pool.h"
#include "tf_rdmabatch/cc/engine/store.h"
#include "tf_rdmabatch/cc/engine/store_memory.h"
#include "tf_rdmabatch/cc/engine/store_tables.h"
#include "tf_rdmabatch/cc/engine/store_wire.h"
#include "tf_rdmabatch/cc/memory/heap_buffer.h"
#include "tf_rdmabatch/cc/memory/shared_view.h"

namespace rdmabatch {

// A connection as the server sees it. Lives longer than the connection, whose context it is.
struct StorePeer : std::enable_shared_from_this<StorePeer> {
  explicit StorePeer(Connection& connection)
      : connection(connection.weak_from_this()),
        id(connection.id()),
        name(connection.peer().ToString()) {}

  const std::weak_ptr<Connection> connection;
  const uint64_t id;
  const std::string name;
  std::atomic<bool> closed{false};
  IdSet opened;                                  // parameters; grows on the control thread
  std::atomic<uint32_t> held{0};                 // slots
  std::atomic<uint32_t> open_requests{0};        // unanswered
  std::atomic<uint32_t> refusals{0};             // unsent
  bool logged = false;                           // progress thread
  std::map<const Region*, std::string> exports;  // control thread
};

// A contribution to a step after the one that is awaited: in its slot, or copied.
struct HeldPush {
  uint64_t step = 0;
  std::shared_ptr<Connection> connection;
  std::shared_ptr<StorePeer> peer;
  uint32_t contributor = 0;
  bool in_slot = false;
  SlotHold hold;
  std::vector<uint8_t> copy;
  const uint8_t* data = nullptr;

  void Release() {
    if (!in_slot) return;
    peer->held.fetch_sub(1, std::memory_order_relaxed);
    connection->Release(hold);
  }
};

// What changes is written under the flag.
struct ServedBlock {
  std::atomic<uint64_t> step{1};       // that is accumulating
  std::atomic<uint64_t> completed{0};  // the last step of which every contribution is in
  std::atomic<uint32_t> count{0};      // contributions
  std::atomic<bool> filled{false};     // the accumulator holds one of them
  SpinFlag flag;
  std::vector<HeldPush> held;  // flag; at most one a contributor
};

// Who pushes as a contributor.
struct Contributor {
  std::atomic<uint64_t> connection{0};  // id; 0 while nobody is known
  uint64_t takeover_step = 0;           // progress thread
  std::string name;                     // members
  bool left_behind = false;             // members: a former one may have contributed a part
  Status ended;                         // members: of the connection, until another may replace it
};

struct Opener {
  std::shared_ptr<StorePeer> peer;
  uint32_t cookie = 0;
  uint32_t notified = 0;  // blocks of the Publish under way
};

struct ServedParameter {
  uint32_t id = 0;
  ParameterInfo info;  // version and step are below
  PublishedPlace place;
  std::shared_ptr<Pool<HeapBuffer>> sums;
  std::shared_ptr<HeapBuffer> accumulator;  // replaced by Collect before a step is opened
  std::vector<ServedBlock> blocks;
  uint32_t bit_words = 0;                   // a block
  std::vector<std::atomic<uint64_t>> bits;  // contributions; written under the block's flag
  std::vector<Contributor> contributors;    // kBsp

  std::atomic<uint64_t> version{0};
  std::atomic<uint64_t> step{1};
  // Blocks completed, or given up, over all steps; how many there are when the awaited step is
  // complete; and the number that Collect waits for.
  std::atomic<uint64_t> completed_blocks{0};
  std::atomic<uint64_t> complete_at{0};
  std::atomic<uint64_t> wake_at{~uint64_t{0}};
  EventCount progress;
  // Who waits for a step without blocking, and the number of completed blocks at which the first of
  // them has what it waits for.
  std::mutex waiting_mutex;
  WaitList waiting;  // waiting_mutex
  std::atomic<uint64_t> waiting_at{~uint64_t{0}};

  std::mutex collect;
  std::mutex publish;
  std::shared_ptr<SharedView> view;  // publish
  std::mutex members;
  std::vector<Opener> openers;  // members
  // Members: why openers ended that had not pushed yet, while the next Collect does not know.
  std::vector<Status> lost;

  bool bsp() const { return info.spec.consistency == Consistency::kBsp; }
  uint8_t* AccumulatorOf(uint32_t block) const {
    return accumulator->data() + uint64_t{block} * info.spec.block_bytes;
  }
  std::atomic<uint64_t>& BitsOf(uint32_t block, uint32_t contributor) {
    return bits[uint64_t{block} * bit_words + contributor / 64];
  }
  bool Contributed(uint32_t block, uint32_t contributor) {
    return (BitsOf(block, contributor).load(std::memory_order_relaxed) >> (contributor % 64) & 1) !=
           0;
  }
};

class ParameterServer::Impl {
 public:
  explicit Impl(MessageSink* next);
  ~Impl();

  // store_server.cc
  Status Serve(const ParameterSpec& spec);
  ServedParameter* Find(const std::string& name) const;
  std::vector<std::string> names() const;
  void Cancel();
  CounterValues counters() const;

  // store_server_wait.cc
  static bool IsComplete(const ServedParameter& p) {
    return p.completed_blocks.load(std::memory_order_acquire) >=
           p.complete_at.load(std::memory_order_acquire);
  }
  void WhenComplete(ServedParameter& p, std::shared_ptr<Waiter> waiter);

  // store_server_datapath.cc
  Disposition OnPush(Connection& connection, const IncomingMessage& message);
  Status Collect(ServedParameter& p, uint64_t step, uint8_t* destination, Deadline deadline);
  // `*next` becomes the accumulator, and the sum comes in its place.
  Status TakeSum(ServedParameter& p, uint64_t step, std::shared_ptr<HeapBuffer>* next,
                 Deadline deadline);
  uint64_t CollectNow(ServedParameter& p, uint8_t* destination);
  // Makes `step` the awaited one, if it is a later one. Under the parameter's `collect`.
  Status Expect(ServedParameter& p, uint64_t step);
  Status Publish(ServedParameter& p, uint64_t version, Span<const PublishedPiece> pieces);

  // store_server_control.cc
  void OnConnected(Connection& connection);
  Disposition OnOpen(Connection& connection, const IncomingMessage& message);
  void OnClosed(Connection& connection, const Status& status);

  MessageSink* const next;
  std::atomic<Engine*> engine{nullptr};

 private:
  struct WaitingOpen {
    std::shared_ptr<StorePeer> peer;
    uint32_t cookie;
  };
  struct Outgoing {
    std::shared_ptr<StorePeer> peer;
    MessageKind kind;
    std::string payload;
    ServedParameter* notice_of;  // payload is made when it is sent
    uint32_t cookie;
  };

  enum class Taken : uint8_t { kNow, kHeld, kRefused };

  // Data path. `data` is null for a contribution of nothing.
  Taken PushBsp(Connection& connection, const IncomingMessage& message, StorePeer* peer,
                ServedParameter& p, const PushHeader& header, const uint8_t* data);
  void PushAsp(ServedParameter& p, const PushHeader& header, const uint8_t* data);
  // Under the block's flag.
  Taken HoldPush(Connection& connection, const IncomingMessage& message, StorePeer* peer,
                 ServedBlock& block, const PushHeader& header, const uint8_t* data,
                 HeldPush* released);
  void Accumulate(ServedParameter& p, uint32_t block, const uint8_t* data, Counters* counters);
  bool Contribute(ServedParameter& p, uint32_t block, uint32_t contributor, const uint8_t* data,
                  Counters* counters);
  static bool Complete(ServedParameter& p, uint32_t block);
  void CopyPieces(uint8_t* data, uint64_t from, uint64_t end, Span<const PublishedPiece>* pieces);
  void AnnounceComplete(ServedParameter& p);
  // Fills in zeros where nobody contributed anything.
  static void Settle(ServedParameter& p, uint32_t block);
  // Opens a step: the next one, when all of `p` was collected, or one that is expected.
  void ReopenAll(ServedParameter& p, uint64_t step);
  void Reopen(ServedParameter& p, uint32_t block, uint64_t step);
  void Notify(ServedParameter& p, uint32_t end, uint64_t version);

  // Slow paths.
  Taken Refuse(Connection& connection, StorePeer* peer, const PushHeader& header, StatusCode code,
               const std::string& why);
  void AdoptContributor(ServedParameter& p, const PushHeader& header, StorePeer* peer);
  // store_server_wait.cc
  Status WaitComplete(ServedParameter& p, uint32_t block, uint64_t step, Deadline deadline);
  Status SleepUntilComplete(ServedParameter& p, uint32_t block, uint64_t step, Deadline deadline);
  static void EndReached(ServedParameter& p);
  static void EndWaiters(ServedParameter& p, const Status& status);
  // Ends who waits without blocking, when the wait is hopeless.
  void EndHopeless(ServedParameter& p);
  // Why Collect must not wait for the block any longer, if so.
  Status Hopeless(ServedParameter& p, uint32_t block);
  std::string Missing(ServedParameter& p, uint32_t block);

  // The control thread.
  void Run();
  void Enqueue(std::function<void()> task);
  void Answer(const std::shared_ptr<StorePeer>& peer, uint32_t cookie, const std::string& name);
  static void AdmitReplacement(ServedParameter& p);
  Result<std::string> ExportTo(StorePeer& peer, Connection& connection, const Region& region);
  void SendRefusal(const std::shared_ptr<StorePeer>& peer, uint32_t cookie, const Status& status);
  void SendSoon(Outgoing message);
  bool TrySend(const Outgoing& message);
  void ForgetPeer(const std::shared_ptr<StorePeer>& peer, const Status& status);
  void ForgetIn(ServedParameter& p, StorePeer& peer, const Status& status);

  std::atomic<bool> cancelled_{false};
  Counters progress_counters_;     // progress thread
  Counters application_counters_;  // application threads, shared

  std::mutex memory_mutex_;  // held while memory is registered
  PublishedMemory memory_;   // memory_mutex_

  mutable std::mutex mutex_;
  std::unordered_map<std::string, ServedParameter*> by_name_;          // mutex_
  std::vector<std::unique_ptr<ServedParameter>> parameters_;           // mutex_
  std::unordered_map<std::string, std::vector<WaitingOpen>> waiting_;  // mutex_
  std::vector<std::shared_ptr<StorePeer>> peers_;                      // mutex_
  IdTable<ServedParameter> table_;  // the same parameters, for the progress thread

  std::mutex tasks_mutex_;
  std::condition_variable tasks_ready_;
  std::vector<std::function<void()>> tasks_;  // tasks_mutex_
  bool stop_ = false;                         // tasks_mutex_
  std::vector<Outgoing> backlog_;             // control thread
  std::thread control_;
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_STORE_SERVER_H_
