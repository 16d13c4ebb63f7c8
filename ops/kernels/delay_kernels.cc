// RdmabatchDelay, RdmabatchSetDelay and RdmabatchArrival: makes a worker slower without using a
// processor.
#include <algorithm>
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
    const int64_t now = NowNs();
    const int64_t begin = Begin(context, now);
    Tensor* end = nullptr;
    OP_REQUIRES_OK_ASYNC(context, context->allocate_output(0, {}, &end), done);
    end->scalar<int64_t>()() = begin + static_cast<int64_t>(seconds * 1e9);
    const double late = static_cast<double>(now - begin) * 1e-9;
    if (seconds <= late) return done();
    Run run{context, std::move(done), nullptr, seconds + kPatienceSeconds, "the delay of a step"};
    auto task = CurrentTask();
    if (!task.ok()) return run.End(task.status());
    run.task = std::move(*task);
    const Deadline at = Deadline::After(seconds - late);
    const auto waiter = Pend(run, [] { return Status::Ok(); });
    run.task->EndAt(waiter, at);
  }

 private:
  // Returns the latest of the given times, but none to come; now, where there are none.
  static int64_t Begin(OpKernelContext* context, int64_t now) {
    if (context->num_inputs() == 0) return now;
    int64_t latest = 0;
    for (int i = 0; i < context->num_inputs(); ++i) {
      latest = std::max(latest, context->input(i).scalar<int64_t>()());
    }
    return std::min(latest, now);
  }
};

class ArrivalKernel : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    Tensor* time = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &time));
    time->scalar<int64_t>()() = NowNs();
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
REGISTER_KERNEL_BUILDER(Name("RdmabatchArrival").Device(tensorflow::DEVICE_CPU), ArrivalKernel);
REGISTER_KERNEL_BUILDER(Name("RdmabatchSetDelay").Device(tensorflow::DEVICE_CPU), SetDelayKernel);

}  // namespace
}  // namespace rdmabatch::ops
