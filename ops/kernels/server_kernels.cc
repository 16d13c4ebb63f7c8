// RdmabatchServe, RdmabatchPublish and RdmabatchCollect: what a server does with parameters.
#include <string>
#include <vector>

#include "ops/kernels/kernel.h"

namespace rdmabatch::ops {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class ServeKernel : public tensorflow::OpKernel {
 public:
  explicit ServeKernel(OpKernelConstruction* construction) : OpKernel(construction) {
    std::string consistency;
    OP_REQUIRES_OK(construction, construction->GetAttr("contributors", &contributors_));
    OP_REQUIRES_OK(construction, construction->GetAttr("consistency", &consistency));
    OP_REQUIRES_OK(construction, construction->GetAttr("block_bytes", &block_bytes_));
    consistency_ = consistency == "asp" ? Consistency::kAsp : Consistency::kBsp;
  }

  void Compute(OpKernelContext* context) override {
    auto parameters = ParametersOf(context);
    OP_REQUIRES_OK(context, ToAbsl(parameters.status()));
    for (const ParameterPtr& parameter : **parameters) {
      OP_REQUIRES_OK(context, ToAbsl(Serve(*parameter)));
    }
  }

 private:
  Status Serve(const Parameter& parameter) const {
    auto task = parameter.Served();
    if (!task.ok()) return task.status();
    ParameterSpec spec = parameter.EngineSpec();
    spec.contributors = static_cast<uint32_t>(contributors_);
    spec.block_bytes = static_cast<uint32_t>(block_bytes_);
    spec.consistency = consistency_;
    return (*task)->server().Serve(spec);
  }

  int64_t contributors_ = 1;
  int64_t block_bytes_ = 0;
  Consistency consistency_ = Consistency::kBsp;
};

class PublishKernel : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    auto parameters = ParametersOf(context);
    OP_REQUIRES_OK(context, ToAbsl(parameters.status()));
    auto version = NumberOf(context, "version", 1);
    OP_REQUIRES_OK(context, ToAbsl(version.status()));
    tensorflow::OpInputList values;
    OP_REQUIRES_OK(context, context->input_list("values", &values));
    for (size_t i = 0; i < (*parameters)->size(); ++i) {
      OP_REQUIRES_OK(context, ToAbsl(Publish(*(**parameters)[i], values[static_cast<int>(i)],
                                             static_cast<uint64_t>(*version))));
    }
  }

 private:
  static Status Publish(const Parameter& parameter, const Tensor& value, uint64_t version) {
    RDMABATCH_RETURN_IF_ERROR(parameter.CheckValue(value));
    auto task = parameter.Served();
    if (!task.ok()) return task.status();
    return (*task)->server().Publish(parameter.spec.name, version, value.data(),
                                     value.TotalBytes());
  }
};

class CollectKernel : public ListKernel {
 public:
  using ListKernel::ListKernel;

 protected:
  const char* verb() const override { return "collecting"; }

  Status Start(Run run, std::shared_ptr<ParameterList> parameters) override {
    auto step = NumberOf(run.context, "step", 1);
    if (!step.ok()) return step.status();
    ParameterServer& server = run.task->server();
    std::vector<std::string> awaited;
    for (const ParameterPtr& parameter : *parameters) {
      auto served = parameter->Served();
      if (!served.ok()) return served.status();
      if (!server.IsComplete(parameter->spec.name, *step)) awaited.push_back(parameter->spec.name);
    }
    const auto take = [run, parameters, step = *step] { return Take(run, *parameters, step); };
    if (awaited.empty()) {
      run.End(take());
      return Status::Ok();
    }
    const Join join(Pend(run, take), awaited.size());
    for (const std::string& name : awaited) server.WhenComplete(name, *step, join.Part());
    return Status::Ok();
  }

 private:
  static Status Take(const Run& run, const ParameterList& parameters, uint64_t step) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Parameter::Spec& spec = parameters[i]->spec;
      Tensor* output = nullptr;
      RDMABATCH_RETURN_IF_ERROR(
          FromAbsl(run.context->allocate_output(static_cast<int>(i), spec.shape, &output)));
      RDMABATCH_RETURN_IF_ERROR(run.task->server().Collect(
          spec.name, step, output->data(), output->TotalBytes(), Deadline::After(0)));
    }
    return Status::Ok();
  }
};

REGISTER_KERNEL_BUILDER(Name("RdmabatchServe").Device(tensorflow::DEVICE_CPU), ServeKernel);
REGISTER_KERNEL_BUILDER(Name("RdmabatchPublish").Device(tensorflow::DEVICE_CPU), PublishKernel);
REGISTER_KERNEL_BUILDER(Name("RdmabatchCollect").Device(tensorflow::DEVICE_CPU), CollectKernel);

}  // namespace
}  // namespace rdmabatch::ops
