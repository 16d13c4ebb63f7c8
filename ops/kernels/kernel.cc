#include "ops/kernels/kernel.h"

namespace rdmabatch::ops {

using tensorflow::OpKernelContext;

Result<std::shared_ptr<ParameterList>> ParametersOf(OpKernelContext* context) {
  tensorflow::OpInputList handles;
  RDMABATCH_RETURN_IF_ERROR(FromAbsl(context->input_list("parameters", &handles)));
  auto parameters = std::make_shared<ParameterList>(handles.size());
  for (int i = 0; i < handles.size(); ++i) {
    const auto& handle = handles[i].scalar<tensorflow::ResourceHandle>()();
    RDMABATCH_RETURN_IF_ERROR(
        FromAbsl(tensorflow::LookupResource(context, handle, &(*parameters)[i])));
  }
  return parameters;
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

std::string NamesOf(const ParameterList& parameters) {
  if (parameters.empty()) return "no parameter";
  std::string text = parameters.front()->DebugString();
  if (parameters.size() > 1) text += " and " + std::to_string(parameters.size() - 1) + " more";
  return text;
}

ListKernel::ListKernel(tensorflow::OpKernelConstruction* construction)
    : AsyncOpKernel(construction) {
  OP_REQUIRES_OK(construction, construction->GetAttr("timeout", &timeout_));
}

void ListKernel::ComputeAsync(OpKernelContext* context, DoneCallback done) {
  Run run{context, std::move(done), nullptr, timeout_, {}};
  auto parameters = ParametersOf(context);
  if (!parameters.ok()) return run.End(parameters.status());
  auto task = CurrentTask();
  if (!task.ok()) return run.End(task.status());
  run.task = std::move(*task);
  run.what = std::string(verb()) + " " + NamesOf(**parameters);
  const Status started = Start(run, std::move(*parameters));
  if (!started.ok()) run.End(started);
}

}  // namespace rdmabatch::ops
