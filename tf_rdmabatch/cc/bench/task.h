// Task: one process's part in a benchmark. Loops in C++, so that no interpreter is measured.
//
// A task is made, listens or connects, and then runs phases. Whoever orchestrates the tasks gives
// all of them the same interval, so that all count the same stretch of time.
#ifndef TF_RDMABATCH_CC_BENCH_TASK_H_
#define TF_RDMABATCH_CC_BENCH_TASK_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/counters.h"
#include "tf_rdmabatch/cc/base/export.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/engine/engine.h"
#include "tf_rdmabatch/cc/engine/options.h"

namespace rdmabatch::bench {

enum class Phase : uint8_t { kLoad, kLatency };

// On the clock of NowNs. Work begins at once, counts from start to end, and ceases at stop.
struct Interval {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t stop_ns = 0;
};

// What one peer of a task did within the interval.
struct PeerMeasurement {
  uint64_t messages = 0;                                 // that arrived from it
  std::vector<std::pair<uint64_t, uint64_t>> latencies;  // Histogram::buckets
};

struct Measurement {
  double seconds = 0;
  double cpu_s = 0;       // user and system time of all threads of this process
  uint64_t messages = 0;  // that arrived here, or operations that were completed here
  CounterValues counters;
  std::vector<PeerMeasurement> peers;
};

struct TaskOptions {
  EngineOptions engine;
  // "messages": sends and receives; "server", "worker": the parameter store; "copy": memcpy.
  std::string role;
  // messages: to whom it sends: "nobody", "connected" (the peers that it connected to), "accepted".
  std::string sends = "nobody";
  // Of a message or a copy; of all parameters together.
  uint64_t bytes = 64;
  // server, worker
  uint32_t parameters = 1;    // of all servers
  uint32_t servers = 1;       // parameter i is served by server i % servers
  uint32_t index = 0;         // of this server, or of this worker
  uint32_t contributors = 1;  // pushes that make a round
  bool pushes = false;
  bool pulls = false;
};

// One thread drives a task; nothing here waits beyond its deadline or interval.
class RDMABATCH_EXPORT Task {
 public:
  // kInvalidArgument names the option that is wrong.
  static Result<std::unique_ptr<Task>> Create(const TaskOptions& options);
  virtual ~Task() = default;

  // See Engine. Connect makes `connections` connections to each address.
  Result<std::string> Listen(const std::string& address);
  Status Connect(const std::vector<std::string>& addresses, uint32_t connections,
                 Deadline deadline);
  // Until so many connections are there, accepted ones included.
  Status AwaitPeers(uint32_t count, Deadline deadline);
  // What follows the connecting; blocks until the deadline at most.
  virtual Status Prepare(Deadline) { return Status::Ok(); }

  Status Run(Phase phase, const Interval& interval, Measurement* measurement);

  // Memory that one connection takes here, on average.
  uint64_t memory_bytes_per_peer() const;

 protected:
  explicit Task(TaskOptions options) : options_(std::move(options)) {}

  bool stopped() const { return stop_.load(std::memory_order_relaxed); }
  bool counting() const { return counting_.load(std::memory_order_relaxed); }
  void CountOperation() { operations_.Add(1); }

  // The work of a phase, on a thread of its own, until stopped(). Sinks may work meanwhile, too.
  virtual Status Work(Phase phase) = 0;
  // Ends the waits of Work.
  virtual void Interrupt() {}
  // Messages that arrived so far, by peer; empty for tasks that count operations.
  virtual std::vector<uint64_t> Arrived() const { return {}; }
  // Adds the latencies counted so far to measurement->peers.
  virtual void AddLatencies(Measurement*) const {}
  virtual void OnConnectedTo(const std::shared_ptr<Connection>&) {}

  const TaskOptions options_;
  std::unique_ptr<Engine> engine_;  // null for the copy; subclasses end it before their sinks go

 private:
  struct Snapshot;
  Snapshot Take() const;

  std::atomic<bool> stop_{false};
  std::atomic<bool> counting_{false};
  Counter operations_;
};

}  // namespace rdmabatch::bench

#endif  // TF_RDMABATCH_CC_BENCH_TASK_H_
