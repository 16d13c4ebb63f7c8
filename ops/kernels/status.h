// The engine's statuses and dtypes as TensorFlow's, and back.
#ifndef OPS_KERNELS_STATUS_H_
#define OPS_KERNELS_STATUS_H_

#include <optional>

#include "absl/status/status.h"
#include "tensorflow/core/framework/types.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/engine/dtype.h"

namespace rdmabatch::ops {

absl::Status ToAbsl(const Status& status);
Status FromAbsl(const absl::Status& status);

// Nothing for a dtype that parameters cannot have.
std::optional<DType> FromTensorFlow(tensorflow::DataType dtype);

}  // namespace rdmabatch::ops

#endif  // OPS_KERNELS_STATUS_H_
