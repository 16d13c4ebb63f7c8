// The ops: inputs, outputs, attributes, shapes.
//
// Those on parameters take lists, of one or of many. Each handle belongs to one device and one
// parameter, so that automatic control dependencies order what touches the same parameter on the
// same device, and nothing else. Those that wait for peers say that they communicate: TensorFlow
// lets no other op return UnavailableError.
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace rdmabatch::ops {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ScalarShape;
using tensorflow::shape_inference::ShapeHandle;

absl::Status ShapesOfAttr(InferenceContext* c) {
  std::vector<tensorflow::PartialTensorShape> shapes;
  TF_RETURN_IF_ERROR(c->GetAttr("shapes", &shapes));
  if (static_cast<int>(shapes.size()) != c->num_outputs()) {
    return absl::InvalidArgumentError("one shape for each output is needed");
  }
  for (int i = 0; i < c->num_outputs(); ++i) {
    ShapeHandle shape;
    TF_RETURN_IF_ERROR(c->MakeShapeFromPartialTensorShape(shapes[i], &shape));
    c->set_output(i, shape);
  }
  return absl::OkStatus();
}

// Every input of the name is a scalar.
absl::Status RequireScalars(InferenceContext* c, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    std::vector<ShapeHandle> shapes;
    TF_RETURN_IF_ERROR(c->input(name, &shapes));
    for (const ShapeHandle& shape : shapes) {
      ShapeHandle scalar;
      TF_RETURN_IF_ERROR(c->WithRank(shape, 0, &scalar));
    }
  }
  return absl::OkStatus();
}

#define DTYPES "{float, double, half, bfloat16, int32, int64}"

REGISTER_OP("RdmabatchConfigure")
    .Input("task: string")
    .Input("token: string")
    .Input("listen: string")
    .Output("address: string")
    .Attr("transport: string = 'auto'")
    .Attr("slots: int = 64")
    .Attr("slot_bytes: int = 65536")
    .Attr("threads: int = 2")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(RequireScalars(c, {"task", "token", "listen"}));
      return ScalarShape(c);
    });

REGISTER_OP("RdmabatchConnect")
    .Input("names: string")
    .Input("addresses: string")
    .Output("connected: int32")
    .Attr("timeout: float")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(ScalarShape);

REGISTER_OP("RdmabatchStats")
    .Output("names: string")
    .Output("values: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
      c->set_output(1, c->Vector(InferenceContext::kUnknownDim));
      return absl::OkStatus();
    });

REGISTER_OP("RdmabatchRoundTimes")
    .Output("names: string")
    .Output("rounds: int64")
    .Attr("last: int >= 0")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
      c->set_output(1, c->Matrix(InferenceContext::kUnknownDim, InferenceContext::kUnknownDim));
      return absl::OkStatus();
    });

REGISTER_OP("RdmabatchUpdated")
    .Input("variables: N * resource")
    .Input("step: int64")
    .Attr("N: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      return RequireScalars(c, {"variables", "step"});
    });

REGISTER_OP("RdmabatchTransports")
    .Output("peers: string")
    .Output("transports: string")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
      c->set_output(1, c->Vector(InferenceContext::kUnknownDim));
      return absl::OkStatus();
    });

REGISTER_OP("RdmabatchParameter")
    .Output("handle: resource")
    .Attr("parameter: string")
    .Attr("server: string")
    .Attr("dtype: " DTYPES)
    .Attr("shape: shape")
    .Attr("contributor: int >= 0 = 0")
    .Attr("priority: int >= 0 = 0")
    .SetIsStateful()
    .SetShapeFn(ScalarShape);

REGISTER_OP("RdmabatchServe")
    .Input("parameters: N * resource")
    .Output("served: int32")
    .Attr("N: int >= 1")
    .Attr("contributors: int >= 1")
    .Attr("versions: int = 1")
    .Attr("consistency: {'bsp', 'asp'} = 'bsp'")
    .Attr("block_bytes: int >= 0 = 0")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(RequireScalars(c, {"parameters"}));
      return ScalarShape(c);
    });

REGISTER_OP("RdmabatchPublish")
    .Input("parameters: N * resource")
    .Input("values: dtypes")
    .Input("version: int64")
    .Attr("N: int >= 1")
    .Attr("dtypes: list(" DTYPES ") >= 1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      return RequireScalars(c, {"parameters", "version"});
    });

REGISTER_OP("RdmabatchPublishVariable")
    .Input("parameters: N * resource")
    .Input("variables: N * resource")
    .Input("version: int64")
    .Attr("N: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      return RequireScalars(c, {"parameters", "variables", "version"});
    });

REGISTER_OP("RdmabatchCollect")
    .Input("parameters: N * resource")
    .Input("step: int64")
    .Output("values: dtypes")
    .Attr("N: int >= 1")
    .Attr("dtypes: list(" DTYPES ") >= 1")
    .Attr("shapes: list(shape) >= 1")
    .Attr("timeout: float")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(RequireScalars(c, {"parameters", "step"}));
      return ShapesOfAttr(c);
    });

REGISTER_OP("RdmabatchPull")
    .Input("parameters: N * resource")
    .Input("version: int64")
    .Output("values: dtypes")
    .Attr("N: int >= 1")
    .Attr("dtypes: list(" DTYPES ") >= 1")
    .Attr("shapes: list(shape) >= 1")
    .Attr("copy: bool = true")
    .Attr("timeout: float")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(RequireScalars(c, {"parameters", "version"}));
      return ShapesOfAttr(c);
    });

REGISTER_OP("RdmabatchPush")
    .Input("parameters: N * resource")
    .Input("values: dtypes")
    .Input("step: int64")
    .Input("micro_step: int64")
    .Input("micro_steps: int64")
    .Input("first_replica: int64")
    .Attr("N: int >= 1")
    .Attr("dtypes: list(" DTYPES ") >= 1")
    .Attr("reduction: {'sum', 'first'} = 'sum'")
    .Attr("timeout: float")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn([](InferenceContext* c) {
      return RequireScalars(c,
                            {"parameters", "step", "micro_step", "micro_steps", "first_replica"});
    });

REGISTER_OP("RdmabatchPushNothing")
    .Input("parameters: N * resource")
    .Input("step: int64")
    .Attr("N: int >= 1")
    .Attr("timeout: float")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn([](InferenceContext* c) {
      return RequireScalars(c, {"parameters", "step"});
    });

}  // namespace
}  // namespace rdmabatch::ops
