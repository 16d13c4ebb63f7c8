#include "tf_rdmabatch/cc/bench/task.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>

#include "tf_rdmabatch/cc/bench/copy_task.h"
#include "tf_rdmabatch/cc/bench/message_task.h"
#include "tf_rdmabatch/cc/bench/store_task.h"

namespace rdmabatch::bench {
namespace {

void SleepUntil(int64_t ns) {
  const int64_t left = ns - NowNs();
  if (left > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(left));
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

struct Task::Snapshot {
  int64_t ns = 0;
  double cpu_s = 0;
  uint64_t operations = 0;
  std::vector<uint64_t> arrived;
  CounterValues counters;
};

Result<std::unique_ptr<Task>> Task::Create(const TaskOptions& options) {
  if (options.bytes == 0) return Status(StatusCode::kInvalidArgument, "bytes must be positive");
  if (options.role == "messages") return MessageTask::Create(options);
  if (options.role == "server") return ServerTask::Create(options);
  if (options.role == "worker") return WorkerTask::Create(options);
  if (options.role == "copy") return CopyTask::Create(options);
  return Status(StatusCode::kInvalidArgument, "no such role: " + options.role);
}

Result<std::string> Task::Listen(const std::string& address) {
  if (engine_ == nullptr) return Status(StatusCode::kFailedPrecondition, "a copy has no peers");
  return engine_->Listen(address);
}

Status Task::Connect(const std::vector<std::string>& addresses, uint32_t connections,
                     Deadline deadline) {
  if (engine_ == nullptr) return {StatusCode::kFailedPrecondition, "a copy has no peers"};
  for (const std::string& address : addresses) {
    for (uint32_t i = 0; i < connections; ++i) {
      auto connection = engine_->Connect(address, deadline);
      if (!connection.ok()) return connection.status();
      OnConnectedTo(*connection);
    }
  }
  return Status::Ok();
}

Status Task::AwaitPeers(uint32_t count, Deadline deadline) {
  while (engine_ != nullptr && engine_->connections().size() < count) {
    if (deadline.expired()) return {StatusCode::kDeadlineExceeded, "not all peers have connected"};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return Status::Ok();
}

Task::Snapshot Task::Take() const {
  Snapshot snapshot;
  snapshot.ns = NowNs();
  snapshot.cpu_s = CpuSeconds();
  snapshot.operations = operations_.value();
  snapshot.arrived = Arrived();
  if (engine_ != nullptr) snapshot.counters = engine_->counters();
  return snapshot;
}

Status Task::Run(Phase phase, const Interval& interval, Measurement* measurement) {
  stop_.store(false);
  Status status;
  std::thread work;
  try {
    work = std::thread([&] { status = Work(phase); });
  } catch (const std::system_error& error) {
    return {StatusCode::kResourceExhausted, std::string("starting a thread: ") + error.what()};
  }
  SleepUntil(interval.start_ns);
  const Snapshot before = Take();
  counting_.store(true);
  SleepUntil(interval.end_ns);
  counting_.store(false);
  const Snapshot after = Take();
  SleepUntil(interval.stop_ns);
  stop_.store(true);
  Interrupt();
  work.join();

  measurement->seconds = 1e-9 * static_cast<double>(after.ns - before.ns);
  measurement->cpu_s = after.cpu_s - before.cpu_s;
  measurement->messages = after.operations - before.operations;
  measurement->counters = after.counters;
  measurement->counters -= before.counters;
  measurement->peers.resize(after.arrived.size());
  for (size_t i = 0; i < after.arrived.size(); ++i) {
    measurement->peers[i].messages =
        after.arrived[i] - (i < before.arrived.size() ? before.arrived[i] : 0);
    measurement->messages += measurement->peers[i].messages;
  }
  AddLatencies(measurement);
  return status;
}

uint64_t Task::memory_bytes_per_peer() const {
  if (engine_ == nullptr) return 0;
  const auto connections = engine_->connections();
  uint64_t bytes = 0;
  for (const auto& connection : connections) bytes += connection->memory_bytes();
  return connections.empty() ? 0 : bytes / connections.size();
}

}  // namespace rdmabatch::bench
