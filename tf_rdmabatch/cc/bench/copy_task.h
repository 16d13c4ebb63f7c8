// CopyTask: copies out of cache with the engine's own routine, what everything that moves bytes is
// compared with.
#ifndef TF_RDMABATCH_CC_BENCH_COPY_TASK_H_
#define TF_RDMABATCH_CC_BENCH_COPY_TASK_H_

#include <memory>

#include "tf_rdmabatch/cc/bench/histogram.h"
#include "tf_rdmabatch/cc/bench/task.h"
#include "tf_rdmabatch/cc/memory/segment.h"

namespace rdmabatch::bench {

// Walks through two pools that are each larger than a last-level cache, one copy after the other.
class CopyTask : public Task {
 public:
  static Result<std::unique_ptr<Task>> Create(const TaskOptions& options);

 protected:
  Status Work(Phase phase) override;
  void AddLatencies(Measurement* measurement) const override;

 private:
  explicit CopyTask(const TaskOptions& options) : Task(options) {}

  Segment from_;
  Segment to_;
  Histogram latencies_;
};

}  // namespace rdmabatch::bench

#endif  // TF_RDMABATCH_CC_BENCH_COPY_TASK_H_
