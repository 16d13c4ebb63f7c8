#include "ops/kernels/parameter.h"

#include "tf_rdmabatch/cc/engine/sums.h"

namespace rdmabatch::ops {

using tensorflow::Tensor;

Result<std::shared_ptr<Task>> CurrentTask() {
  auto task = Task::Current();
  if (task == nullptr) {
    return Status(StatusCode::kFailedPrecondition,
                  "this process has no engine yet: run tf_rdmabatch.ops.configure on its device");
  }
  return task;
}

ParameterSpec Parameter::EngineSpec() const {
  ParameterSpec engine;
  engine.name = spec.name;
  engine.dtype = spec.dtype;
  for (const auto& dim : spec.shape) engine.shape.push_back(dim.size);
  return engine;
}

Result<std::shared_ptr<Task>> Parameter::Served() const {
  auto task = CurrentTask();
  if (task.ok() && (*task)->name() != spec.server) {
    return Status(StatusCode::kInvalidArgument, DebugString() + " is served by " + spec.server +
                                                    ", and this is task " + (*task)->name());
  }
  return task;
}

Result<std::shared_ptr<RemoteParameter>> Parameter::RemoteOf(const std::shared_ptr<Task>& task) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (task_.lock() == task) return remote_;
  auto remote = task->Remote(spec.server, EngineSpec());
  if (!remote.ok()) return remote;
  task_ = task;
  remote_ = *remote;
  return remote;
}

Status Parameter::CheckValue(const Tensor& value) const {
  if (value.dtype() == spec.tf_dtype && value.shape() == spec.shape) return Status::Ok();
  return {StatusCode::kInvalidArgument,
          DebugString() + " is " + std::string(DTypeName(spec.dtype)) + " " +
              spec.shape.DebugString() + ", and the value is " +
              tensorflow::DataTypeString(value.dtype()) + " " + value.shape().DebugString()};
}

Status Parameter::Accumulate(const Tensor& value, const MicroStep& micro_step,
                             std::optional<Tensor>* sum) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (micro_step.number == 0) {
    sum_ = value;
  } else if (sum_step_ != micro_step.step || summed_ != micro_step.number) {
    return {StatusCode::kFailedPrecondition,
            DebugString() + ": micro-step " + std::to_string(micro_step.number) + " of step " +
                std::to_string(micro_step.step) + " does not follow the one before it"};
  } else if (sum_.RefCountIsOne()) {
    AddInto(spec.dtype, sum_.data(), value.data(), value.NumElements());
  } else {
    Tensor both(spec.tf_dtype, spec.shape);
    SumStream(spec.dtype, both.data(), sum_.data(), value.data(), value.NumElements());
    sum_ = std::move(both);
  }
  sum_step_ = micro_step.step;
  summed_ = micro_step.number + 1;
  if (summed_ == micro_step.count) {
    sum->emplace(std::move(sum_));
    sum_ = Tensor();
    summed_ = 0;
  }
  return Status::Ok();
}

Contribution Parameter::ContributionOf(uint64_t step, std::optional<Tensor> value) const {
  Contribution contribution;
  contribution.step = step;
  contribution.contributor = spec.contributor;
  if (!value) return contribution;
  auto owner = std::make_shared<const Tensor>(std::move(*value));
  contribution.data = owner->data();
  contribution.bytes = owner->TotalBytes();
  contribution.owner = std::move(owner);
  return contribution;
}

}  // namespace rdmabatch::ops
