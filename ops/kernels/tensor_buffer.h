// Tensors over memory of the engine's.
#ifndef OPS_KERNELS_TENSOR_BUFFER_H_
#define OPS_KERNELS_TENSOR_BUFFER_H_

#include <cstddef>
#include <memory>

#include "tensorflow/core/framework/tensor.h"

namespace rdmabatch::ops {

// `owner` keeps `data` until the last tensor is gone. What is not `exclusive` may only be read:
// TensorFlow then neither reuses the memory for an op's output nor updates a variable in it.
tensorflow::Tensor TensorOver(tensorflow::DataType dtype, const tensorflow::TensorShape& shape,
                              std::shared_ptr<void> owner, void* data, bool exclusive);

}  // namespace rdmabatch::ops

#endif  // OPS_KERNELS_TENSOR_BUFFER_H_
