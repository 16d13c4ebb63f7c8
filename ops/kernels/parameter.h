// Parameter: what a resource handle of these ops refers to, one for each device and parameter.
#ifndef OPS_KERNELS_PARAMETER_H_
#define OPS_KERNELS_PARAMETER_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

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

// Thread-safe.
class Parameter : public tensorflow::ResourceBase {
 public:
  struct Spec {
    std::string name;
    std::string server;  // the task that serves it
    DType dtype = DType::kFloat32;
    tensorflow::DataType tf_dtype = tensorflow::DT_FLOAT;
    tensorflow::TensorShape shape;
    uint32_t contributor = 0;  // as which this device pushes
    int64_t priority = 0;      // lower ones are sent first
  };

  explicit Parameter(Spec spec) : spec(std::move(spec)) {}

  std::string DebugString() const override { return "parameter \"" + spec.name + "\""; }
  uint64_t bytes() const { return spec.shape.num_elements() * DTypeSize(spec.dtype); }

  // As the engine knows it: name, dtype and shape.
  ParameterSpec EngineSpec() const;
  // This process's task, when it serves the parameter.
  Result<std::shared_ptr<Task>> Served() const;
  // The parameter at its server, by way of this process's task.
  Result<std::shared_ptr<RemoteParameter>> RemoteOf(const std::shared_ptr<Task>& task);
  Status CheckValue(const tensorflow::Tensor& value) const;

  // Adds a micro-step's value to the sum of its step. After the last one gives the sum away.
  Status Accumulate(const tensorflow::Tensor& value, const MicroStep& micro_step,
                    std::optional<tensorflow::Tensor>* sum);
  // What this device contributes to a step: a value or nothing.
  Contribution ContributionOf(uint64_t step, std::optional<tensorflow::Tensor> value) const;

  const Spec spec;

 private:
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

}  // namespace rdmabatch::ops

#endif  // OPS_KERNELS_PARAMETER_H_
