#include "ops/kernels/kernel.h"

namespace rdmabatch::ops {
namespace {

using tensorflow::OpKernelContext;

Status Lookup(OpKernelContext* context, const tensorflow::Tensor& handle, ParameterPtr* parameter) {
  return FromAbsl(tensorflow::LookupResource(context, handle.scalar<tensorflow::ResourceHandle>()(),
                                             parameter));
}

}  // namespace

Result<std::shared_ptr<Parameter>> ParameterOf(OpKernelContext* context) {
  const tensorflow::Tensor* handle = nullptr;
  RDMABATCH_RETURN_IF_ERROR(FromAbsl(context->input("parameter", &handle)));
  ParameterPtr parameter;
  RDMABATCH_RETURN_IF_ERROR(Lookup(context, *handle, &parameter));
  auto* const held = parameter.release();
  return std::shared_ptr<Parameter>(held, [](Parameter* p) { p->Unref(); });
}

Result<std::shared_ptr<ParameterList>> ParametersOf(OpKernelContext* context) {
  tensorflow::OpInputList handles;
  RDMABATCH_RETURN_IF_ERROR(FromAbsl(context->input_list("parameters", &handles)));
  auto parameters = std::make_shared<ParameterList>(handles.size());
  for (int i = 0; i < handles.size(); ++i) {
    RDMABATCH_RETURN_IF_ERROR(Lookup(context, handles[i], &(*parameters)[i]));
  }
  return parameters;
}

Status CheckParts(int64_t parts, const Parameter& parameter) {
  if (parts == static_cast<int64_t>(parameter.size())) return Status::Ok();
  return {StatusCode::kInvalidArgument, parameter.DebugString() + " has " +
                                            std::to_string(parameter.size()) + " tensors, not " +
                                            std::to_string(parts)};
}

Result<TensorRefs> ValuesOf(OpKernelContext* context, const Parameter& parameter) {
  tensorflow::OpInputList inputs;
  RDMABATCH_RETURN_IF_ERROR(FromAbsl(context->input_list("values", &inputs)));
  RDMABATCH_RETURN_IF_ERROR(CheckParts(inputs.size(), parameter));
  TensorRefs values;
  for (const tensorflow::Tensor& input : inputs) values.push_back(&input);
  RDMABATCH_RETURN_IF_ERROR(parameter.CheckValues(values));
  return values;
}

Result<int64_t> NumberOf(OpKernelContext* context, const char* input, int64_t least) {
  const tensorflow::Tensor* tensor = nullptr;
  RDMABATCH_RETURN_IF_ERROR(FromAbsl(context->input(input, &tensor)));
  if (tensor->NumElements() != 1) {
    return Status(StatusCode::kInvalidArgument, std::string(input) + " must be one number");
  }
  const int64_t number = tensor->flat<int64_t>()(0);
  if (number < least) {
    return Status(StatusCode::kInvalidArgument, std::string(input) + " must be at least " +
                                                    std::to_string(least) + ", not " +
                                                    std::to_string(number));
  }
  return number;
}

WaitingKernel::WaitingKernel(tensorflow::OpKernelConstruction* construction)
    : AsyncOpKernel(construction) {
  OP_REQUIRES_OK(construction, construction->GetAttr("timeout", &timeout_));
}

void WaitingKernel::ComputeAsync(OpKernelContext* context, DoneCallback done) {
  Run run{context, std::move(done), nullptr, timeout_, {}};
  auto task = CurrentTask();
  if (!task.ok()) return run.End(task.status());
  run.task = std::move(*task);
  const Status started = Start(&run);
  if (!started.ok()) run.End(started);
}

}  // namespace rdmabatch::ops
