// ServerTask and WorkerTask: rounds of the parameter store.
//
// `bytes` is cut evenly into `parameters` float32 parameters. With `pushes` and `pulls` a worker
// pushes all of them, waits for the next version, and pulls all of them. With `pulls` alone it
// pulls the first version again and again; with `pushes` alone the server adds whatever comes.
#ifndef TF_RDMABATCH_CC_BENCH_STORE_TASK_H_
#define TF_RDMABATCH_CC_BENCH_STORE_TASK_H_

#include <memory>
#include <vector>

#include "tf_rdmabatch/cc/bench/histogram.h"
#include "tf_rdmabatch/cc/bench/task.h"
#include "tf_rdmabatch/cc/engine/store.h"

namespace rdmabatch::bench {

class ServerTask : public Task {
 public:
  static Result<std::unique_ptr<Task>> Create(const TaskOptions& options);
  ~ServerTask() override;

 protected:
  // Collects each parameter and publishes the sum, where there are pushes and pulls.
  Status Work(Phase phase) override;
  void Interrupt() override { server_.Cancel(); }

 private:
  explicit ServerTask(const TaskOptions& options) : Task(options) {}
  Status Serve();
  Status Round(uint64_t step);

  ParameterServer server_;
  std::vector<std::string> names_;
};

class WorkerTask : public Task {
 public:
  static Result<std::unique_ptr<Task>> Create(const TaskOptions& options);
  ~WorkerTask() override;

  // Opens the parameters.
  Status Prepare(Deadline deadline) override;

 protected:
  // Counts a push or a pull of one parameter as an operation, and the time of a round as latency.
  Status Work(Phase phase) override;
  void Interrupt() override { client_.Cancel(); }
  void AddLatencies(Measurement* measurement) const override;
  void OnConnectedTo(const std::shared_ptr<Connection>& connection) override;

 private:
  explicit WorkerTask(const TaskOptions& options) : Task(options) {}
  Status Round(uint64_t step);
  Status PushAll(uint64_t step);
  Status PullAll(uint64_t version);

  ParameterClient client_;
  std::vector<std::shared_ptr<Connection>> servers_;
  std::vector<std::shared_ptr<ParameterClient::Parameter>> parameters_;
  std::shared_ptr<Region> values_;  // of all parameters, pushed from and pulled into
  Histogram latencies_;
};

}  // namespace rdmabatch::bench

#endif  // TF_RDMABATCH_CC_BENCH_STORE_TASK_H_
