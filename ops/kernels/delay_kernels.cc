// RdmabatchDelay and RdmabatchSetDelay: makes a worker slower without using a processor.
#include <atomic>
#include <string>
#include <utility>

#include "ops/kernels/kernel.h"

namespace rdmabatch::ops {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

constexpr double kMostSeconds = 3600;
// After this and the delay something is wrong with the timer.
constexpr double kPatienceSeconds = 60;

// Of this process. 0: none.
std::atomic<double> delay_seconds{0};

class DelayKernel : public tensorflow::AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const double seconds = delay_seconds.load(std::memory_order_relaxed);
    if (seconds == 0) return done();
    Run run{context, std::move(done), nullptr, seconds + kPatienceSeconds, "the delay of a step"};
    auto task = CurrentTask();
    if (!task.ok()) return run.End(task.status());
    run.task = std::move(*task);
    const Deadline at = Deadline::After(seconds);
    const auto waiter = Pend(run, [] { return Status::Ok(); });
    run.task->EndAt(waiter, at);
  }
};

class SetDelayKernel : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const double seconds = context->input(0).scalar<double>()();
    // NaN is not in the range.
    OP_REQUIRES(context, seconds >= 0 && seconds <= kMostSeconds,
                absl::InvalidArgumentError("a delay is from 0 to 3600 seconds, not " +
                                           std::to_string(seconds)));
    delay_seconds.store(seconds, std::memory_order_relaxed);
    Tensor* delay = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &delay));
    delay->scalar<double>()() = seconds;
  }
};

REGISTER_KERNEL_BUILDER(Name("RdmabatchDelay").Device(tensorflow::DEVICE_CPU), DelayKernel);
REGISTER_KERNEL_BUILDER(Name("RdmabatchSetDelay").Device(tensorflow::DEVICE_CPU), SetDelayKernel);

}  // namespace
}  // namespace rdmabatch::ops
