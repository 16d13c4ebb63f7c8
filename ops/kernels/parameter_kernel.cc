// RdmabatchParameter: the handle of a parameter on this device.
#include "ops/kernels/parameter.h"
#include "ops/kernels/status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace rdmabatch::ops {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

class ParameterKernel : public tensorflow::OpKernel {
 public:
  explicit ParameterKernel(OpKernelConstruction* construction) : OpKernel(construction) {
    int64_t contributor = 0;
    OP_REQUIRES_OK(construction, construction->GetAttr("parameter", &spec_.name));
    OP_REQUIRES_OK(construction, construction->GetAttr("server", &spec_.server));
    OP_REQUIRES_OK(construction, construction->GetAttr("dtype", &spec_.tf_dtype));
    OP_REQUIRES_OK(construction, construction->GetAttr("shape", &spec_.shape));
    OP_REQUIRES_OK(construction, construction->GetAttr("contributor", &contributor));
    OP_REQUIRES_OK(construction, construction->GetAttr("priority", &spec_.priority));
    spec_.contributor = static_cast<uint32_t>(contributor);
    spec_.dtype = FromTensorFlow(spec_.tf_dtype).value_or(DType::kFloat32);
    // Two handles are one only when they agree in everything.
    key_ = spec_.name + "|" + spec_.server + "|" + tensorflow::DataTypeString(spec_.tf_dtype) +
           spec_.shape.DebugString() + "|" + std::to_string(contributor) + "|" +
           std::to_string(spec_.priority);
  }

  void Compute(OpKernelContext* context) override {
    tensorflow::ResourceMgr* const resources = context->resource_manager();
    const std::string& container = resources->default_container();
    Parameter* parameter = nullptr;
    OP_REQUIRES_OK(context, resources->LookupOrCreate<Parameter>(container, key_, &parameter,
                                                                 [this](Parameter** created) {
                                                                   *created = new Parameter(spec_);
                                                                   return absl::OkStatus();
                                                                 }));
    parameter->Unref();
    tensorflow::Tensor* handle = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &handle));
    handle->scalar<tensorflow::ResourceHandle>()() =
        tensorflow::MakeResourceHandle<Parameter>(context, container, key_);
  }

 private:
  Parameter::Spec spec_;
  std::string key_;
};

REGISTER_KERNEL_BUILDER(Name("RdmabatchParameter").Device(tensorflow::DEVICE_CPU), ParameterKernel);

}  // namespace
}  // namespace rdmabatch::ops
