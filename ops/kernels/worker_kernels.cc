// RdmabatchPull and RdmabatchPush: what a worker does with parameters.
#include <optional>
#include <vector>

#include "ops/kernels/kernel.h"

namespace rdmabatch::ops {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::Tensor;

using RemoteList = std::vector<std::shared_ptr<RemoteParameter>>;

Result<RemoteList> RemotesOf(const Run& run, const ParameterList& parameters) {
  RemoteList remotes;
  for (const ParameterPtr& parameter : parameters) {
    auto remote = parameter->RemoteOf(run.task);
    if (!remote.ok()) return remote.status();
    remotes.push_back(std::move(*remote));
  }
  return remotes;
}

class PullKernel : public ListKernel {
 public:
  using ListKernel::ListKernel;

 protected:
  const char* verb() const override { return "pulling"; }

  Status Start(Run run, std::shared_ptr<ParameterList> parameters) override {
    auto version = NumberOf(run.context, "version", 1);
    if (!version.ok()) return version.status();
    auto remotes = RemotesOf(run, *parameters);
    if (!remotes.ok()) return remotes.status();
    RemoteList awaited;
    for (const auto& remote : *remotes) {
      if (!run.task->HasVersion(*remote, *version)) awaited.push_back(remote);
    }
    const auto read = [run, parameters, remotes = *remotes, version = *version] {
      return Read(run, *parameters, remotes, version);
    };
    if (awaited.empty()) {
      run.End(read());
      return Status::Ok();
    }
    const Join join(Pend(run, read), awaited.size());
    for (const auto& remote : awaited) run.task->WhenVersion(remote, *version, join.Part());
    return Status::Ok();
  }

 private:
  static Status Read(const Run& run, const ParameterList& parameters, const RemoteList& remotes,
                     uint64_t version) {
    const Deadline deadline = Deadline::After(run.timeout_seconds);
    for (size_t i = 0; i < parameters.size(); ++i) {
      Tensor* output = nullptr;
      RDMABATCH_RETURN_IF_ERROR(FromAbsl(
          run.context->allocate_output(static_cast<int>(i), parameters[i]->spec.shape, &output)));
      RDMABATCH_RETURN_IF_ERROR(run.task->client().Pull(
          *remotes[i]->opened(), version, output->data(), output->TotalBytes(), deadline));
    }
    return Status::Ok();
  }
};

class PushKernel : public ListKernel {
 public:
  using ListKernel::ListKernel;

 protected:
  const char* verb() const override { return "pushing to"; }

  Status Start(Run run, std::shared_ptr<ParameterList> parameters) override {
    auto step = NumberOf(run.context, "step", 1);
    if (!step.ok()) return step.status();
    auto micro_step = NumberOf(run.context, "micro_step", 0);
    if (!micro_step.ok()) return micro_step.status();
    auto micro_steps = NumberOf(run.context, "micro_steps", 1);
    if (!micro_steps.ok()) return micro_steps.status();
    tensorflow::OpInputList values;
    RDMABATCH_RETURN_IF_ERROR(FromAbsl(run.context->input_list("values", &values)));
    auto remotes = RemotesOf(run, *parameters);
    if (!remotes.ok()) return remotes.status();

    std::vector<Contribution> rest;
    for (size_t i = 0; i < parameters->size(); ++i) {
      const Parameter& parameter = *(*parameters)[i];
      std::optional<Tensor> sum;
      RDMABATCH_RETURN_IF_ERROR((*parameters)[i]->CheckValue(values[static_cast<int>(i)]));
      RDMABATCH_RETURN_IF_ERROR((*parameters)[i]->Accumulate(values[static_cast<int>(i)], *step,
                                                             *micro_step, *micro_steps, &sum));
      if (!sum) continue;
      auto owner = std::make_shared<const Tensor>(std::move(*sum));
      const SharedBytes bytes{owner, owner->data(), owner->TotalBytes()};
      const Status sent =
          run.task->TryPush(*(*remotes)[i], *step, parameter.spec.contributor, bytes);
      if (sent.code() == StatusCode::kDeadlineExceeded) {
        rest.push_back({(*remotes)[i], &parameter.spec, bytes});
      } else if (!sent.ok()) {
        return sent;
      }
    }
    if (rest.empty()) {
      run.End(Status::Ok());
      return Status::Ok();
    }
    const Join join(Pend(run, [parameters] { return Status::Ok(); }), rest.size());
    for (const Contribution& c : rest) {
      run.task->Push(c.remote, *step, c.spec->contributor, c.bytes, c.spec->priority, join.Part());
    }
    return Status::Ok();
  }

 private:
  struct Contribution {
    std::shared_ptr<RemoteParameter> remote;
    const Parameter::Spec* spec;
    SharedBytes bytes;
  };
};

REGISTER_KERNEL_BUILDER(Name("RdmabatchPull").Device(tensorflow::DEVICE_CPU), PullKernel);
REGISTER_KERNEL_BUILDER(Name("RdmabatchPush").Device(tensorflow::DEVICE_CPU), PushKernel);

}  // namespace
}  // namespace rdmabatch::ops
