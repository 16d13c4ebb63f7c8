// Task: what a process of a job is to its peers: an engine, both halves of the parameter store, and
// connections by the names of tasks. Its operations return at once and end a Waiter later.
#ifndef TF_RDMABATCH_CC_ENGINE_TASK_H_
#define TF_RDMABATCH_CC_ENGINE_TASK_H_

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/counters.h"
#include "tf_rdmabatch/cc/base/executor.h"
#include "tf_rdmabatch/cc/base/export.h"
#include "tf_rdmabatch/cc/base/pool.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/base/timers.h"
#include "tf_rdmabatch/cc/base/waiter.h"
#include "tf_rdmabatch/cc/engine/block_tuner.h"
#include "tf_rdmabatch/cc/engine/deadlines.h"
#include "tf_rdmabatch/cc/engine/engine.h"
#include "tf_rdmabatch/cc/engine/round_times.h"
#include "tf_rdmabatch/cc/engine/send_queue.h"
#include "tf_rdmabatch/cc/engine/store.h"
#include "tf_rdmabatch/cc/memory/heap_buffer.h"
#include "tf_rdmabatch/cc/memory/shared_view.h"

namespace rdmabatch {

struct TaskOptions {
  EngineOptions engine;                // its name is the task's: "worker:0"
  std::string listen = "127.0.0.1:0";  // where peers find it
  int threads = 2;                     // that copy and send what had to wait
  uint32_t contributor = 0;            // as which it pushes
  bool tune_blocks = false;            // finds out what to cut pushes into (BlockTuner)
};

// To a step of a parameter.
struct Contribution {
  uint64_t step = 0;
  uint32_t contributor = 0;
  const void* data = nullptr;  // null: nothing
  uint64_t bytes = 0;
  std::shared_ptr<const void> owner;  // of `data`
};

// A version that was pulled.
struct Pulled {
  std::shared_ptr<void> owner;
  void* data = nullptr;
  bool exclusive = false;  // else it may only be read
};

// Where a pull goes: one of the two.
struct Landing {
  std::unique_ptr<HeapBuffer> heap;
  std::shared_ptr<Region> region;

  uint8_t* data() const { return heap != nullptr ? heap->data() : region->data(); }
};

// A parameter that a peer serves. Opened by the first operation on it.
class RemoteParameter {
 public:
  RemoteParameter(std::string server, ParameterSpec expected)
      : server(std::move(server)), expected(std::move(expected)) {}

  const std::string server;      // the task
  const ParameterSpec expected;  // name, dtype and shape

  // Null until it is open.
  ParameterClient::Parameter* opened() const { return opened_.load(std::memory_order_acquire); }
  uint64_t bytes() const { return ParameterClient::Info(*opened()).bytes; }

 private:
  friend class Task;
  std::mutex mutex_;
  bool opening_ = false;                                // mutex_
  std::vector<std::shared_ptr<Waiter>> waiting_;        // mutex_: until it is open
  std::shared_ptr<ParameterClient::Parameter> asked_;   // mutex_: until it is answered
  std::shared_ptr<ParameterClient::Parameter> handle_;  // mutex_: once it is open
  std::atomic<ParameterClient::Parameter*> opened_{nullptr};

  struct View {
    std::shared_ptr<SharedView> memory;
    uint64_t version = 0;
  };
  std::mutex views_mutex_;
  std::array<View, 2> views_;               // views_mutex_: of even and odd versions
  std::shared_ptr<Pool<Landing>> landing_;  // views_mutex_
};

// Thread-safe. Waiters end in any thread, possibly in the progress thread: they may not block.
class RDMABATCH_EXPORT Task : public MessageSink, public std::enable_shared_from_this<Task> {
 public:
  static Result<std::shared_ptr<Task>> Create(const TaskOptions& options);
  // Creates a task in the place of this process's current one, which is stopped first.
  static Result<std::shared_ptr<Task>> Start(const TaskOptions& options);
  // Null when none was started.
  static std::shared_ptr<Task> Current();
  static void StopCurrent();
  ~Task() override;

  const std::string& name() const { return options_.engine.name; }
  const std::string& address() const { return address_; }  // "ip:port"
  uint32_t contributor() const { return options_.contributor; }
  ParameterServer& server() { return server_; }
  ParameterClient& client() { return client_; }
  // Of the engine and of the parameter store.
  CounterValues counters() const;
  // Whoever runs an operation says so here.
  RoundTimes& times() { return times_; }
  // What pushes are cut into at present; 0 where that is not found out.
  uint64_t tuned_bytes() const { return tuner_ == nullptr ? 0 : tuner_->bytes(); }
  // Each connected peer's name, and the transport that carries it and why.
  std::vector<std::pair<std::string, std::string>> Transports() const;

  // Connects to a task, or does nothing where there is a connection already; waits until it
  // listens, until the deadline passes or `until` ends.
  Status Connect(const std::string& peer, const std::string& address, Deadline deadline,
                 const Waiter& until);
  // The same object for the same names. Of `expected` the name, the dtype and the shape count:
  // where the server's are others, operations end with kInvalidArgument. kFailedPrecondition: no
  // connection to that task.
  Result<std::shared_ptr<RemoteParameter>> Remote(const std::string& server,
                                                  const ParameterSpec& expected);

  // Ends `waiter` once the version is published; opens the parameter first where need be.
  void WhenVersion(const std::shared_ptr<RemoteParameter>& parameter, uint64_t version,
                   std::shared_ptr<Waiter> waiter);
  // Whether WhenVersion would end at once.
  bool HasVersion(const RemoteParameter& parameter, uint64_t version) const {
    auto* const opened = parameter.opened();
    return opened != nullptr && client_.HasVersion(*opened, version);
  }
  // Reads a version that HasVersion, into memory that is used again.
  Result<Pulled> Pull(RemoteParameter& parameter, uint64_t version, Deadline deadline);
  // The same without a copy, where this process can map the server's memory: that memory, which
  // stays as it is until it is updated in place or, where two versions are kept, until version + 2
  // is published. In the first case the update waits for Release. In the second, what was pulled
  // before and is still in use when the next version is pulled becomes a copy by then, so it is
  // enough that every version is pulled, and version + 2 waits for a contribution made after that.
  Result<Pulled> PullView(RemoteParameter& parameter, uint64_t version, Deadline deadline);
  // Makes a copy of what PullView returned and is still in use: the server's memory may change
  // then.
  Status Release(RemoteParameter& parameter);
  // Sends as much of a contribution as there is room for; kDeadlineExceeded: Push sends the rest.
  Status TryPush(const RemoteParameter& parameter, const Contribution& contribution);
  // Ends `waiter` once the contribution is in slots. Lower priorities are sent first.
  void Push(const std::shared_ptr<RemoteParameter>& parameter, const Contribution& contribution,
            int64_t priority, std::shared_ptr<Waiter> waiter);

  // Ends `waiter` with kDeadlineExceeded; `what` begins the message.
  void Expire(const std::shared_ptr<Waiter>& waiter, Deadline deadline, std::string what) {
    deadlines_.Add(waiter, deadline, std::move(what));
  }
  // Ends `waiter` at that time, or when the task is stopped.
  void EndAt(std::shared_ptr<Waiter> waiter, Deadline at) { timers_.Add(std::move(waiter), at); }
  // Runs a job that does not wait for another.
  void Post(std::function<void()> job) { executor_.Post(std::move(job)); }
  // Runs a job that may wait long, one at a time.
  void PostControl(std::function<void()> job) { control_.Post(std::move(job)); }

  // Ends every operation, connection and thread. Not from a job.
  void Stop();

  void OnConnected(Connection& connection) override;
  Disposition OnMessage(Connection& connection, const IncomingMessage& message) override;
  void OnClosed(Connection& connection, const Status& status) override;

 private:
  struct Peer {
    std::shared_ptr<Connection> connection;
    std::shared_ptr<SendQueue> queue;
  };

  explicit Task(TaskOptions options);
  Status Begin();
  Result<Peer> PeerOf(const std::string& name) const;
  void WhenOpen(const std::shared_ptr<RemoteParameter>& parameter, std::shared_ptr<Waiter> waiter);
  void Open(const std::shared_ptr<RemoteParameter>& parameter);
  void Opened(const std::shared_ptr<RemoteParameter>& parameter, Status status);
  Status Send(const RemoteParameter& parameter, const Contribution& contribution,
              Deadline deadline);
  // Detaches what others than the parameter use. Under its views' mutex.
  Status DetachUsed(RemoteParameter::View& view, const RemoteParameter& parameter);
  // Null where there is no mapping.
  Result<std::shared_ptr<SharedView>> ViewOf(RemoteParameter& parameter, uint64_t version);
  // Memory for a parameter's bytes: registered, where the transport needs it.
  std::unique_ptr<Landing> MakeLanding(const ParameterClient::Parameter& parameter);

  const TaskOptions options_;
  std::string address_;
  Executor executor_;
  Executor control_;
  Timers timers_;
  Deadlines deadlines_{&timers_};
  ParameterServer server_;
  ParameterClient client_;

  mutable std::mutex mutex_;
  std::map<std::string, Peer> peers_;  // mutex_
  std::map<std::pair<std::string, std::string>, std::shared_ptr<RemoteParameter>> parameters_;
  std::atomic<bool> stopping_{false};
  Counters counters_;  // shared
  RoundTimes times_;
  std::unique_ptr<BlockTuner> tuner_;  // optional
  std::mutex stop_mutex_;              // one Stop at a time
  std::unique_ptr<Engine> engine_;     // last: its threads use all of the above
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_TASK_H_
