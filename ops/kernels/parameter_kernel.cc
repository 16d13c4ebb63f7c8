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
    tensorflow::DataType dtype = tensorflow::DT_FLOAT;
    std::vector<tensorflow::TensorShape> shapes;
    OP_REQUIRES_OK(construction, construction->GetAttr("parameter", &spec_.name));
    OP_REQUIRES_OK(construction, construction->GetAttr("server", &spec_.server));
    OP_REQUIRES_OK(construction, construction->GetAttr("dtype", &dtype));
    OP_REQUIRES_OK(construction, construction->GetAttr("shapes", &shapes));
    OP_REQUIRES_OK(construction, construction->GetAttr("priority", &spec_.priority));
    spec_.dtype = FromTensorFlow(dtype).value_or(DType::kFloat32);
    spec_.layout = Layout(dtype, std::move(shapes));
    // Two handles are one only when they agree in everything.
    key_ = spec_.name + "|" + spec_.server + "|" + tensorflow::DataTypeString(dtype) + "|" +
           std::to_string(spec_.priority);
    for (const auto& shape : spec_.layout.shapes) key_ += shape.DebugString();
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
