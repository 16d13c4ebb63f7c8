// RdmabatchPull, RdmabatchRelease, RdmabatchPush and RdmabatchPushNothing: what a worker does with
// parameters.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/kernels/kernel.h"

namespace rdmabatch::ops {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

using ParameterRef = std::shared_ptr<Parameter>;
using RemotePtr = std::shared_ptr<RemoteParameter>;

class PullKernel : public WaitingKernel {
 public:
  explicit PullKernel(OpKernelConstruction* construction) : WaitingKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("copy", &copy_));
  }

 protected:
  Status Start(Run* run) override {
    auto parameter = ParameterOf(run->context);
    if (!parameter.ok()) return parameter.status();
    RDMABATCH_RETURN_IF_ERROR(CheckParts(run->context->num_outputs(), **parameter));
    auto version = NumberOf(run->context, "version", 1);
    if (!version.ok()) return version.status();
    auto remote = (*parameter)->RemoteOf(run->task);
    if (!remote.ok()) return remote.status();
    run->what = "pulling " + (*parameter)->DebugString();
    const RoundTimes::Op timed = run->task->times().Pull(*version);
    const auto read = [copy = copy_, run = *run, parameter = *parameter, remote = *remote,
                       version = *version, timed] {
      Status done = Read(run, *parameter, *remote, version, copy);
      timed.Ends();
      return done;
    };
    if (run->task->HasVersion(**remote, *version)) {
      run->End(read());
      return Status::Ok();
    }
    timed.Blocks();
    run->task->WhenVersion(*remote, *version, Pend(*run, [read, timed] {
      timed.Resumes();
      return read();
    }));
    return Status::Ok();
  }

 private:
  static Status Read(const Run& run, const Parameter& parameter, RemoteParameter& remote,
                     uint64_t version, bool copy) {
    const Deadline deadline = Deadline::After(run.timeout_seconds);
    auto pulled = copy ? run.task->Pull(remote, version, deadline)
                       : run.task->PullView(remote, version, deadline);
    if (!pulled.ok()) return pulled.status();
    for (size_t i = 0; i < parameter.size(); ++i) {
      run.context->set_output(static_cast<int>(i),
                              parameter.Part(i, pulled->owner, pulled->data, pulled->exclusive));
    }
    return Status::Ok();
  }

  bool copy_ = true;
};

class ReleaseKernel : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    auto parameters = ParametersOf(context);
    OP_REQUIRES_OK(context, ToAbsl(parameters.status()));
    auto task = CurrentTask();
    OP_REQUIRES_OK(context, ToAbsl(task.status()));
    for (const ParameterPtr& parameter : **parameters) {
      auto remote = parameter->RemoteOf(*task);
      OP_REQUIRES_OK(context, ToAbsl(remote.status()));
      OP_REQUIRES_OK(context, ToAbsl((*task)->Release(**remote)));
    }
  }
};

struct Sending {
  RemotePtr remote;
  int64_t priority;
  Contribution contribution;
};

// Sends at once what there is room for, and the rest as there is.
Status Send(const Run& run, const std::vector<Sending>& all, RoundTimes::Op timed) {
  std::vector<const Sending*> rest;
  for (const Sending& sending : all) {
    Status sent = run.task->TryPush(*sending.remote, sending.contribution);
    if (sent.code() == StatusCode::kDeadlineExceeded) {
      rest.push_back(&sending);
    } else if (!sent.ok()) {
      return sent;
    }
  }
  const auto end = [timed] {
    timed.Ends();
    return Status::Ok();
  };
  if (rest.empty()) {
    run.End(end());
    return Status::Ok();
  }
  const Join join(Pend(run, end), rest.size());
  for (const Sending* sending : rest) {
    run.task->Push(sending->remote, sending->contribution, sending->priority, join.Part());
  }
  return Status::Ok();
}

class PushKernel : public WaitingKernel {
 public:
  explicit PushKernel(OpKernelConstruction* construction) : WaitingKernel(construction) {
    std::string reduction;
    OP_REQUIRES_OK(construction, construction->GetAttr("reduction", &reduction));
    first_ = reduction == "first";
  }

 protected:
  Status Start(Run* run) override {
    auto parameter = ParameterOf(run->context);
    if (!parameter.ok()) return parameter.status();
    auto micro_step = MicroStepOf(run->context);
    if (!micro_step.ok()) return micro_step.status();
    auto values = ValuesOf(run->context, **parameter);
    if (!values.ok()) return values.status();
    auto remote = (*parameter)->RemoteOf(run->task);
    if (!remote.ok()) return remote.status();
    run->what = "pushing to " + (*parameter)->DebugString();
    const RoundTimes::Op timed =
        run->task->times().Push(micro_step->step, micro_step->number, micro_step->count);
    std::optional<Tensor> whole;
    bool due = true;
    if (!first_) {
      RDMABATCH_RETURN_IF_ERROR((*parameter)->Accumulate(*values, *micro_step, &whole));
      due = whole.has_value();
    } else if (micro_step->number != 0) {
      due = false;
    } else if (micro_step->first_replica == 0) {
      whole = (*parameter)->Gather(*values);
    }
    if (!due) {
      timed.Ends();
      run->End(Status::Ok());
      return Status::Ok();
    }
    return Send(*run,
                {{std::move(*remote), (*parameter)->spec.priority,
                  ContributionOf(*run->task, micro_step->step, std::move(whole))}},
                timed);
  }

 private:
  static Result<MicroStep> MicroStepOf(OpKernelContext* context) {
    auto step = NumberOf(context, "step", 1);
    if (!step.ok()) return step.status();
    auto number = NumberOf(context, "micro_step", 0);
    if (!number.ok()) return number.status();
    auto count = NumberOf(context, "micro_steps", *number + 1);
    if (!count.ok()) return count.status();
    auto first_replica = NumberOf(context, "first_replica", 0);
    if (!first_replica.ok()) return first_replica.status();
    return MicroStep{static_cast<uint64_t>(*step), *number, *count, *first_replica};
  }

  bool first_ = false;
};

class PushNothingKernel : public WaitingKernel {
 public:
  using WaitingKernel::WaitingKernel;

 protected:
  Status Start(Run* run) override {
    auto parameters = ParametersOf(run->context);
    if (!parameters.ok()) return parameters.status();
    auto step = NumberOf(run->context, "step", 1);
    if (!step.ok()) return step.status();
    run->what = "pushing nothing to " + (*parameters)->front()->DebugString();
    const RoundTimes::Op timed = run->task->times().Push(*step, 0, 0);
    std::vector<Sending> sending;
    for (const ParameterPtr& parameter : **parameters) {
      auto remote = parameter->RemoteOf(run->task);
      if (!remote.ok()) return remote.status();
      sending.push_back({std::move(*remote), parameter->spec.priority,
                         ContributionOf(*run->task, static_cast<uint64_t>(*step), std::nullopt)});
    }
    return Send(*run, sending, timed);
  }
};

REGISTER_KERNEL_BUILDER(Name("RdmabatchPull").Device(tensorflow::DEVICE_CPU), PullKernel);
REGISTER_KERNEL_BUILDER(Name("RdmabatchRelease").Device(tensorflow::DEVICE_CPU), ReleaseKernel);
REGISTER_KERNEL_BUILDER(Name("RdmabatchPush").Device(tensorflow::DEVICE_CPU), PushKernel);
REGISTER_KERNEL_BUILDER(Name("RdmabatchPushNothing").Device(tensorflow::DEVICE_CPU),
                        PushNothingKernel);

}  // namespace
}  // namespace rdmabatch::ops
