// Parameter: what a resource handle of these ops refers to, one for each device and parameter.
#ifndef OPS_KERNELS_PARAMETER_H_
#define OPS_KERNELS_PARAMETER_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/tensor.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/engine/task.h"

namespace rdmabatch::ops {

// Of a worker's share of a step.
struct MicroStep {
  uint64_t step = 0;
  int64_t number = 0;
  int64_t count = 1;
  int64_t first_replica = 0;  // the number, among all workers' micro-steps, of this worker's first
};

// One tensor, or a pack: several of one dtype, one behind the other.
struct Layout {
  Layout() = default;
  Layout(tensorflow::DataType dtype, std::vector<tensorflow::TensorShape> shapes);

  bool is_pack() const { return shapes.size() != 1; }
  uint64_t bytes_of(size_t i) const { return elements_of(i) * element_bytes; }
  int64_t elements_of(size_t i) const { return shapes[i].num_elements(); }
  // As the engine knows it. A pack has no other shape than its size.
  std::vector<uint64_t> EngineShape() const;

  tensorflow::DataType dtype = tensorflow::DT_FLOAT;
  uint64_t element_bytes = 4;
  std::vector<tensorflow::TensorShape> shapes;
  std::vector<uint64_t> offsets;  // bytes; each begins at a cache line
  uint64_t bytes = 0;             // of all
};

using TensorRefs = std::vector<const tensorflow::Tensor*>;

// Thread-safe.
class Parameter : public tensorflow::ResourceBase {
 public:
  struct Spec {
    std::string name;
    std::string server;  // the task that serves it
    DType dtype = DType::kFloat32;
    Layout layout;
    int64_t priority = 0;  // lower ones are sent first
  };

  explicit Parameter(Spec spec) : spec(std::move(spec)) {}

  std::string DebugString() const override { return "parameter \"" + spec.name + "\""; }
  size_t size() const { return spec.layout.shapes.size(); }

  // This process's task, when it serves the parameter.
  Result<std::shared_ptr<Task>> Served() const;
  // The parameter at its server, by way of this process's task.
  Result<std::shared_ptr<RemoteParameter>> RemoteOf(const std::shared_ptr<Task>& task);
  Status CheckValues(const TensorRefs& values) const;
  // A tensor over a part of memory that holds the parameter.
  tensorflow::Tensor Part(size_t i, const std::shared_ptr<void>& owner, void* data,
                          bool exclusive) const;

  // Adds a micro-step's values to the sums of its step. After the last one gives them away, in one
  // tensor. What is left of an earlier step is dropped, and so is what comes late from one.
  Status Accumulate(const TensorRefs& values, const MicroStep& micro_step,
                    std::optional<tensorflow::Tensor>* sum);
  // The values in one tensor, without a copy where there is but one.
  tensorflow::Tensor Gather(const TensorRefs& values) const;

  const Spec spec;

 private:
  void AddValues(const TensorRefs& values);  // mutex_

  std::mutex mutex_;
  std::weak_ptr<Task> task_;                 // mutex_: that remote_ is of
  std::shared_ptr<RemoteParameter> remote_;  // mutex_
  tensorflow::Tensor sum_;                   // mutex_
  uint64_t sum_step_ = 0;                    // mutex_
  int64_t summed_ = 0;                       // mutex_: micro-steps
};

using ParameterPtr = tensorflow::core::RefCountPtr<Parameter>;

// The task that `configure` started in this process.
Result<std::shared_ptr<Task>> CurrentTask();
// What a task contributes to a step: a value or nothing.
Contribution ContributionOf(const Task& task, uint64_t step,
                            std::optional<tensorflow::Tensor> value);

}  // namespace rdmabatch::ops

#endif  // OPS_KERNELS_PARAMETER_H_
