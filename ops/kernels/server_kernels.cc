// RdmabatchServe, RdmabatchPublish, RdmabatchPublishVariable and RdmabatchCollect: what a server
// does with parameters.
#include <string>
#include <utility>
#include <vector>

#include "ops/kernels/kernel.h"
#include "ops/kernels/tensor_buffer.h"
#include "tensorflow/core/framework/resource_var.h"

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
    OP_REQUIRES_OK(construction, construction->GetAttr("versions", &versions_));
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
    Tensor* served = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &served));
    served->scalar<int32_t>()() = static_cast<int32_t>((*parameters)->size());
  }

 private:
  Status Serve(const Parameter& parameter) const {
    auto task = parameter.Served();
    if (!task.ok()) return task.status();
    ParameterSpec spec = parameter.EngineSpec();
    spec.contributors = static_cast<uint32_t>(contributors_);
    spec.versions = static_cast<uint32_t>(versions_);
    spec.block_bytes = static_cast<uint32_t>(block_bytes_);
    spec.consistency = consistency_;
    return (*task)->server().Serve(spec);
  }

  int64_t contributors_ = 1;
  int64_t versions_ = 1;
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
    auto task = CurrentTask();
    OP_REQUIRES_OK(context, ToAbsl(task.status()));
    const RoundTimes::Op timed = (*task)->times().Publish(*version);
    tensorflow::OpInputList values;
    OP_REQUIRES_OK(context, context->input_list("values", &values));
    for (size_t i = 0; i < (*parameters)->size(); ++i) {
      OP_REQUIRES_OK(context, ToAbsl(Publish(*(**parameters)[i], values[static_cast<int>(i)],
                                             static_cast<uint64_t>(*version))));
    }
    timed.Ends();
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

class PublishVariableKernel : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    auto parameters = ParametersOf(context);
    OP_REQUIRES_OK(context, ToAbsl(parameters.status()));
    auto version = NumberOf(context, "version", 1);
    OP_REQUIRES_OK(context, ToAbsl(version.status()));
    auto task = CurrentTask();
    OP_REQUIRES_OK(context, ToAbsl(task.status()));
    const RoundTimes::Op timed = (*task)->times().Publish(*version);
    tensorflow::OpInputList variables;
    OP_REQUIRES_OK(context, context->input_list("variables", &variables));
    for (size_t i = 0; i < (*parameters)->size(); ++i) {
      tensorflow::core::RefCountPtr<tensorflow::Var> variable;
      OP_REQUIRES_OK(
          context,
          tensorflow::LookupResource(
              context, variables[static_cast<int>(i)].scalar<tensorflow::ResourceHandle>()(),
              &variable));
      tensorflow::mutex_lock lock(*variable->mu());
      OP_REQUIRES_OK(context, ToAbsl(Publish(*(**parameters)[i], variable->tensor(),
                                             static_cast<uint64_t>(*version))));
    }
    timed.Ends();
  }

 private:
  // A copy, unless the value lies in the published memory already. It does from then on, where one
  // version is kept and nobody reads while it is updated.
  static Status Publish(const Parameter& parameter, Tensor* value, uint64_t version) {
    RDMABATCH_RETURN_IF_ERROR(parameter.CheckValue(*value));
    auto task = parameter.Served();
    if (!task.ok()) return task.status();
    ParameterServer& server = (*task)->server();
    const Parameter::Spec& spec = parameter.spec;
    RDMABATCH_RETURN_IF_ERROR(
        server.Publish(spec.name, version, value->data(), value->TotalBytes()));
    auto info = server.Info(spec.name);
    if (!info.ok()) return info.status();
    if (info->spec.versions != 1 || info->spec.consistency != Consistency::kBsp) {
      return Status::Ok();
    }
    auto published = server.published(spec.name);
    if (!published.ok()) return published.status();
    if (value->data() != *published) {
      *value = TensorOver(spec.tf_dtype, spec.shape, std::move(*task), *published, true);
    }
    return Status::Ok();
  }
};

class CollectKernel : public ListKernel {
 public:
  using ListKernel::ListKernel;

 protected:
  const char* verb() const override { return "collecting"; }

  Status Start(const Run& run, std::shared_ptr<ParameterList> parameters) override {
    auto step = NumberOf(run.context, "step", 1);
    if (!step.ok()) return step.status();
    ParameterServer& server = run.task->server();
    const RoundTimes::Op timed = run.task->times().Collect(*step);
    std::vector<std::string> awaited;
    for (const ParameterPtr& parameter : *parameters) {
      auto served = parameter->Served();
      if (!served.ok()) return served.status();
      if (!server.IsComplete(parameter->spec.name, *step)) awaited.push_back(parameter->spec.name);
    }
    const auto take = [run, parameters, step = *step, timed] {
      const Status taken = Take(run, *parameters, step);
      timed.Ends();
      return taken;
    };
    if (awaited.empty()) {
      run.End(take());
      return Status::Ok();
    }
    const auto resume = [take, timed] {
      timed.Resumes();
      return take();
    };
    timed.Blocks();
    const Join join(Pend(run, resume), awaited.size());
    for (const std::string& name : awaited) server.WhenComplete(name, *step, join.Part());
    return Status::Ok();
  }

 private:
  static Status Take(const Run& run, const ParameterList& parameters, uint64_t step) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Parameter::Spec& spec = parameters[i]->spec;
      auto sum = run.task->server().TakeSum(spec.name, step, Deadline::After(0));
      if (!sum.ok()) return sum.status();
      void* const data = sum->get();
      run.context->set_output(
          static_cast<int>(i),
          TensorOver(spec.tf_dtype, spec.shape, std::move(*sum), data, /*exclusive=*/true));
    }
    return Status::Ok();
  }
};

REGISTER_KERNEL_BUILDER(Name("RdmabatchServe").Device(tensorflow::DEVICE_CPU), ServeKernel);
REGISTER_KERNEL_BUILDER(Name("RdmabatchPublish").Device(tensorflow::DEVICE_CPU), PublishKernel);
REGISTER_KERNEL_BUILDER(Name("RdmabatchPublishVariable").Device(tensorflow::DEVICE_CPU),
                        PublishVariableKernel);
REGISTER_KERNEL_BUILDER(Name("RdmabatchCollect").Device(tensorflow::DEVICE_CPU), CollectKernel);

}  // namespace
}  // namespace rdmabatch::ops
