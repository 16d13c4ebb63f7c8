// What the kernels share: unpacking inputs and attributes.
#ifndef OPS_KERNELS_KERNEL_H_
#define OPS_KERNELS_KERNEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/kernels/parameter.h"
#include "ops/kernels/pending.h"
#include "ops/kernels/status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace rdmabatch::ops {

using ParameterList = std::vector<ParameterPtr>;

// The resource of the input `parameter`.
Result<std::shared_ptr<Parameter>> ParameterOf(tensorflow::OpKernelContext* context);
// The resources of the input `parameters`.
Result<std::shared_ptr<ParameterList>> ParametersOf(tensorflow::OpKernelContext* context);
// The input `values`, which fit the parameter.
Result<TensorRefs> ValuesOf(tensorflow::OpKernelContext* context, const Parameter& parameter);
// How many inputs or outputs the kernel has, which is as many as the parameter has parts.
Status CheckParts(int64_t parts, const Parameter& parameter);
// The whole number in a scalar input; at least `least`.
Result<int64_t> NumberOf(tensorflow::OpKernelContext* context, const char* input, int64_t least);

// An asynchronous kernel that may wait for peers.
class WaitingKernel : public tensorflow::AsyncOpKernel {
 public:
  explicit WaitingKernel(tensorflow::OpKernelConstruction* construction);
  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) final;

 protected:
  // Ends the run, unless it fails: then the caller does. Sets `run->what` before it waits.
  virtual Status Start(Run* run) = 0;

 private:
  float timeout_ = 0;
};

}  // namespace rdmabatch::ops

#endif  // OPS_KERNELS_KERNEL_H_
