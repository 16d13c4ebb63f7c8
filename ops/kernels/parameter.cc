#include "ops/kernels/parameter.h"

#include <cstring>

#include "ops/kernels/tensor_buffer.h"
#include "tf_rdmabatch/cc/base/bits.h"
#include "tf_rdmabatch/cc/engine/sums.h"

namespace rdmabatch::ops {
namespace {

constexpr uint64_t kLine = 64;

}  // namespace

using tensorflow::Tensor;

Result<std::shared_ptr<Task>> CurrentTask() {
  auto task = Task::Current();
  if (task == nullptr) {
    return Status(StatusCode::kFailedPrecondition,
                  "this process has no engine yet: run tf_rdmabatch.ops.configure on its device");
  }
  return task;
}

Layout::Layout(tensorflow::DataType dtype, std::vector<tensorflow::TensorShape> shapes)
    : dtype(dtype),
      element_bytes(static_cast<uint64_t>(tensorflow::DataTypeSize(dtype))),
      shapes(std::move(shapes)) {
  for (size_t i = 0; i < this->shapes.size(); ++i) {
    offsets.push_back(AlignUp(bytes, kLine));
    bytes = offsets.back() + bytes_of(i);
  }
}

std::vector<uint64_t> Layout::EngineShape() const {
  if (is_pack()) return {bytes / element_bytes};
  std::vector<uint64_t> shape;
  for (const auto& dim : shapes.front()) shape.push_back(static_cast<uint64_t>(dim.size));
  return shape;
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
  ParameterSpec expected;
  expected.name = spec.name;
  expected.dtype = spec.dtype;
  expected.shape = spec.layout.EngineShape();
  auto remote = task->Remote(spec.server, expected);
  if (!remote.ok()) return remote;
  task_ = task;
  remote_ = *remote;
  sum_step_ = 0;
  return remote;
}

Status Parameter::CheckValues(const TensorRefs& values) const {
  const Layout& layout = spec.layout;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i]->dtype() == layout.dtype && values[i]->shape() == layout.shapes[i]) continue;
    return {StatusCode::kInvalidArgument,
            DebugString() + " is " + std::string(DTypeName(spec.dtype)) + " " +
                layout.shapes[i].DebugString() + ", and the value is " +
                tensorflow::DataTypeString(values[i]->dtype()) + " " +
                values[i]->shape().DebugString()};
  }
  return Status::Ok();
}

Tensor Parameter::Part(size_t i, const std::shared_ptr<void>& owner, void* data,
                       bool exclusive) const {
  const Layout& layout = spec.layout;
  return TensorOver(layout.dtype, layout.shapes[i], owner,
                    static_cast<uint8_t*>(data) + layout.offsets[i], exclusive);
}

Tensor Parameter::Gather(const TensorRefs& values) const {
  const Layout& layout = spec.layout;
  if (!layout.is_pack()) return *values.front();
  Tensor all(layout.dtype, {static_cast<int64_t>(layout.bytes / layout.element_bytes)});
  auto* const data = static_cast<uint8_t*>(all.data());
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t end = layout.offsets[i] + layout.bytes_of(i);
    std::memcpy(data + layout.offsets[i], values[i]->data(), layout.bytes_of(i));
    const uint64_t next = i + 1 < values.size() ? layout.offsets[i + 1] : layout.bytes;
    std::memset(data + end, 0, next - end);
  }
  return all;
}

void Parameter::AddValues(const TensorRefs& values) {
  const Layout& layout = spec.layout;
  if (!sum_.RefCountIsOne()) {  // one tensor, that is still in use
    Tensor both(layout.dtype, layout.shapes.front());
    SumStream(spec.dtype, both.data(), sum_.data(), values.front()->data(), layout.elements_of(0));
    sum_ = std::move(both);
    return;
  }
  auto* const data = static_cast<uint8_t*>(sum_.data());
  for (size_t i = 0; i < values.size(); ++i) {
    AddInto(spec.dtype, data + layout.offsets[i], values[i]->data(), layout.elements_of(i));
  }
}

Status Parameter::Accumulate(const TensorRefs& values, const MicroStep& micro_step,
                             std::optional<Tensor>* sum) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (micro_step.step < sum_step_) return Status::Ok();
  if (micro_step.number == 0) {
    sum_ = Gather(values);
  } else if (sum_step_ != micro_step.step || summed_ != micro_step.number) {
    return {StatusCode::kFailedPrecondition,
            DebugString() + ": micro-step " + std::to_string(micro_step.number) + " of step " +
                std::to_string(micro_step.step) + " does not follow the one before it"};
  } else {
    AddValues(values);
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

Contribution ContributionOf(const Task& task, uint64_t step, std::optional<Tensor> value) {
  Contribution contribution;
  contribution.step = step;
  contribution.contributor = task.contributor();
  if (!value) return contribution;
  auto owner = std::make_shared<const Tensor>(std::move(*value));
  contribution.data = owner->data();
  contribution.bytes = owner->TotalBytes();
  contribution.owner = std::move(owner);
  return contribution;
}

}  // namespace rdmabatch::ops
