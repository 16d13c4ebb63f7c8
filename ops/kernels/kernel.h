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

// The resources of the input `parameters`.
Result<std::shared_ptr<ParameterList>> ParametersOf(tensorflow::OpKernelContext* context);
// The whole number in a scalar input; at least `least`.
Result<int64_t> NumberOf(tensorflow::OpKernelContext* context, const char* input, int64_t least);
// `"a"`, or `"a" and 3 more`.
std::string NamesOf(const ParameterList& parameters);

// An asynchronous kernel on a list of parameters.
class ListKernel : public tensorflow::AsyncOpKernel {
 public:
  explicit ListKernel(tensorflow::OpKernelConstruction* construction);
  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) final;

 protected:
  // Ends the run, unless it fails: then the caller does.
  virtual Status Start(const Run& run, std::shared_ptr<ParameterList> parameters) = 0;
  virtual const char* verb() const = 0;

 private:
  float timeout_ = 0;
};

}  // namespace rdmabatch::ops

#endif  // OPS_KERNELS_KERNEL_H_
