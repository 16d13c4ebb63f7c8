// The ops: inputs, outputs, attributes, shapes.
//
// A parameter is one tensor or a pack of them: inputs and outputs are lists. Each handle belongs to
// one device and one parameter, so that automatic control dependencies order what touches the same
// parameter on the same device, and nothing else. Those that wait for peers say that they
// communicate: TensorFlow lets no other op return UnavailableError.
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
    .Attr("transport: string = ''")
    .Attr("ports: string = ''")
    .Attr("slots: int = 64")
    .Attr("slot_bytes: int = 65536")
    .Attr("threads: int = 2")
    .Attr("contributor: int >= 0 = 0")
    .Attr("confirm: {'batch', 'each'} = 'batch'")
    .Attr("spin_us: float = -1.0")
    .Attr("tune_blocks: bool = false")
    .SetIsStateful()
    .SetIsDistributedCommunication()
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

REGISTER_OP("RdmabatchSoftware")
    .Output("software: string")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Matrix(InferenceContext::kUnknownDim, 2));
      return absl::OkStatus();
    });

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

REGISTER_OP("RdmabatchRoundReport")
    .Input("number: int64")
    .Output("report: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
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

// Without state of its own, so that automatic control dependencies leave it alone where a function
// makes it.
REGISTER_OP("RdmabatchParameter")
    .Output("handle: resource")
    .Attr("parameter: string")
    .Attr("server: string")
    .Attr("dtype: " DTYPES)
    .Attr("shapes: list(shape) >= 1")
    .Attr("priority: int >= 0 = 0")
    .SetShapeFn(ScalarShape);

REGISTER_OP("RdmabatchServe")
    .Output("served: int32")
    .Attr("names: list(string) >= 1")
    .Attr("dtypes: list(" DTYPES ") >= 1")
    .Attr("shapes: list(shape) >= 1")  // of all, in turn
    .Attr("sizes: list(int) >= 1")     // how many each has
    .Attr("contributors: int >= 1")
    .Attr("versions: int = 1")
    .Attr("consistency: {'bsp', 'asp'} = 'bsp'")
    .Attr("block_bytes: int >= -1 = 0")
    .SetIsStateful()
    .SetShapeFn(ScalarShape);

REGISTER_OP("RdmabatchPublish")
    .Input("parameter: resource")
    .Input("values: N * dtype")
    .Input("version: int64")
    .Attr("N: int >= 1")
    .Attr("dtype: " DTYPES)
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      return RequireScalars(c, {"parameter", "version"});
    });

REGISTER_OP("RdmabatchPublishVariables")
    .Input("parameter: resource")
    .Input("variables: N * resource")
    .Input("version: int64")
    .Attr("N: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      return RequireScalars(c, {"parameter", "variables", "version"});
    });

REGISTER_OP("RdmabatchCollect")
    .Input("parameter: resource")
    .Input("step: int64")
    .Output("values: N * dtype")
    .Attr("N: int >= 1")
    .Attr("dtype: " DTYPES)
    .Attr("shapes: list(shape) >= 1")
    .Attr("timeout: float")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(RequireScalars(c, {"parameter", "step"}));
      return ShapesOfAttr(c);
    });

REGISTER_OP("RdmabatchPull")
    .Input("parameter: resource")
    .Input("version: int64")
    .Output("values: N * dtype")
    .Attr("N: int >= 1")
    .Attr("dtype: " DTYPES)
    .Attr("shapes: list(shape) >= 1")
    .Attr("copy: bool = true")
    .Attr("timeout: float")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(RequireScalars(c, {"parameter", "version"}));
      return ShapesOfAttr(c);
    });

REGISTER_OP("RdmabatchRelease")
    .Input("parameters: N * resource")
    .Attr("N: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) { return RequireScalars(c, {"parameters"}); });

REGISTER_OP("RdmabatchPush")
    .Input("parameter: resource")
    .Input("values: N * dtype")
    .Input("step: int64")
    .Input("micro_step: int64")
    .Input("micro_steps: int64")
    .Input("first_replica: int64")
    .Attr("N: int >= 1")
    .Attr("dtype: " DTYPES)
    .Attr("reduction: {'sum', 'first'} = 'sum'")
    .Attr("timeout: float")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn([](InferenceContext* c) {
      return RequireScalars(c, {"parameter", "step", "micro_step", "micro_steps", "first_replica"});
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

REGISTER_OP("RdmabatchDelay")
    .Attr("N: int >= 0")
    .Input("begins: N * int64")
    .Output("end: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarShape);

// Not stateful, since such ops wait for each other in the order of the program.
REGISTER_OP("RdmabatchArrival")
    .Attr("T: type")
    .Input("value: T")
    .Output("time: int64")
    .SetShapeFn(ScalarShape);

REGISTER_OP("RdmabatchSetDelay")
    .Input("seconds: double")
    .Output("delay: double")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(RequireScalars(c, {"seconds"}));
      return ScalarShape(c);
    });

}  // namespace
}  // namespace rdmabatch::ops
