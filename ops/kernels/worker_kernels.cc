// RdmabatchPull, RdmabatchPush and RdmabatchPushNothing: what a worker does with parameters.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/kernels/kernel.h"
#include "ops/kernels/tensor_buffer.h"

namespace rdmabatch::ops {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::Tensor;

using RemotePtr = std::shared_ptr<RemoteParameter>;

Result<std::vector<RemotePtr>> RemotesOf(const Run& run, const ParameterList& parameters) {
  std::vector<RemotePtr> remotes;
  for (const ParameterPtr& parameter : parameters) {
    auto remote = parameter->RemoteOf(run.task);
    if (!remote.ok()) return remote.status();
    remotes.push_back(std::move(*remote));
  }
  return remotes;
}

class PullKernel : public ListKernel {
 public:
  explicit PullKernel(OpKernelConstruction* construction) : ListKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("copy", &copy_));
  }

 protected:
  const char* verb() const override { return "pulling"; }

  Status Start(const Run& run, std::shared_ptr<ParameterList> parameters) override {
    auto version = NumberOf(run.context, "version", 1);
    if (!version.ok()) return version.status();
    auto remotes = RemotesOf(run, *parameters);
    if (!remotes.ok()) return remotes.status();
    const RoundTimes::Op timed = run.task->times().Pull(*version);
    std::vector<RemotePtr> awaited;
    for (const auto& remote : *remotes) {
      if (!run.task->HasVersion(*remote, *version)) awaited.push_back(remote);
    }
    const auto read = [this, run, parameters, remotes = *remotes, version = *version, timed] {
      const Status done = Read(run, *parameters, remotes, version);
      timed.Ends();
      return done;
    };
    if (awaited.empty()) {
      run.End(read());
      return Status::Ok();
    }
    const auto resume = [read, timed] {
      timed.Resumes();
      return read();
    };
    timed.Blocks();
    const Join join(Pend(run, resume), awaited.size());
    for (const auto& remote : awaited) run.task->WhenVersion(remote, *version, join.Part());
    return Status::Ok();
  }

 private:
  Status Read(const Run& run, const ParameterList& parameters,
              const std::vector<RemotePtr>& remotes, uint64_t version) const {
    const Deadline deadline = Deadline::After(run.timeout_seconds);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Parameter::Spec& spec = parameters[i]->spec;
      auto pulled = copy_ ? run.task->Pull(*remotes[i], version, deadline)
                          : run.task->PullView(*remotes[i], version, deadline);
      if (!pulled.ok()) return pulled.status();
      run.context->set_output(static_cast<int>(i),
                              TensorOver(spec.tf_dtype, spec.shape, std::move(pulled->owner),
                                         pulled->data, pulled->exclusive));
    }
    return Status::Ok();
  }

  bool copy_ = true;
};

// Sends at once what there is room for, and the rest as there is.
class SendingKernel : public ListKernel {
 public:
  using ListKernel::ListKernel;

 protected:
  const char* verb() const override { return "pushing to"; }

  struct Sending {
    RemotePtr remote;
    int64_t priority;
    Contribution contribution;
  };

  static Status Send(const Run& run, const std::vector<Sending>& all, RoundTimes::Op timed) {
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
};

class PushKernel : public SendingKernel {
 public:
  explicit PushKernel(OpKernelConstruction* construction) : SendingKernel(construction) {
    std::string reduction;
    OP_REQUIRES_OK(construction, construction->GetAttr("reduction", &reduction));
    first_ = reduction == "first";
  }

 protected:
  Status Start(const Run& run, std::shared_ptr<ParameterList> parameters) override {
    auto micro_step = MicroStepOf(run.context);
    if (!micro_step.ok()) return micro_step.status();
    const RoundTimes::Op timed =
        run.task->times().Push(micro_step->step, micro_step->number, micro_step->count);
    tensorflow::OpInputList values;
    RDMABATCH_RETURN_IF_ERROR(FromAbsl(run.context->input_list("values", &values)));
    auto remotes = RemotesOf(run, *parameters);
    if (!remotes.ok()) return remotes.status();
    std::vector<Sending> sending;
    for (size_t i = 0; i < parameters->size(); ++i) {
      Parameter& parameter = *(*parameters)[i];
      const Tensor& value = values[static_cast<int>(i)];
      RDMABATCH_RETURN_IF_ERROR(parameter.CheckValue(value));
      std::optional<Tensor> whole;
      bool due = true;
      if (!first_) {
        RDMABATCH_RETURN_IF_ERROR(parameter.Accumulate(value, *micro_step, &whole));
        due = whole.has_value();
      } else if (micro_step->number != 0) {
        due = false;
      } else if (micro_step->first_replica == 0) {
        whole = value;
      }
      if (!due) continue;
      sending.push_back({(*remotes)[i], parameter.spec.priority,
                         parameter.ContributionOf(micro_step->step, std::move(whole))});
    }
    return Send(run, sending, timed);
  }

 private:
  static Result<MicroStep> MicroStepOf(tensorflow::OpKernelContext* context) {
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

class PushNothingKernel : public SendingKernel {
 public:
  using SendingKernel::SendingKernel;

 protected:
  Status Start(const Run& run, std::shared_ptr<ParameterList> parameters) override {
    auto step = NumberOf(run.context, "step", 1);
    if (!step.ok()) return step.status();
    const RoundTimes::Op timed = run.task->times().Push(*step, 0, 0);
    auto remotes = RemotesOf(run, *parameters);
    if (!remotes.ok()) return remotes.status();
    std::vector<Sending> sending;
    for (size_t i = 0; i < parameters->size(); ++i) {
      const Parameter& parameter = *(*parameters)[i];
      sending.push_back({(*remotes)[i], parameter.spec.priority,
                         parameter.ContributionOf(static_cast<uint64_t>(*step), std::nullopt)});
    }
    return Send(run, sending, timed);
  }
};

REGISTER_KERNEL_BUILDER(Name("RdmabatchPull").Device(tensorflow::DEVICE_CPU), PullKernel);
REGISTER_KERNEL_BUILDER(Name("RdmabatchPush").Device(tensorflow::DEVICE_CPU), PushKernel);
REGISTER_KERNEL_BUILDER(Name("RdmabatchPushNothing").Device(tensorflow::DEVICE_CPU),
                        PushNothingKernel);

}  // namespace
}  // namespace rdmabatch::ops
