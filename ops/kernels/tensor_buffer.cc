#include "ops/kernels/tensor_buffer.h"

#include <utility>

#include "tensorflow/core/framework/allocation_description.pb.h"
#include "tensorflow/core/framework/types.h"

namespace rdmabatch::ops {
namespace {

class OwnedBuffer : public tensorflow::TensorBuffer {
 public:
  OwnedBuffer(std::shared_ptr<void> owner, void* data, size_t bytes, bool exclusive)
      : TensorBuffer(data), owner_(std::move(owner)), bytes_(bytes), exclusive_(exclusive) {}

  size_t size() const override { return bytes_; }
  TensorBuffer* root_buffer() override { return this; }
  bool OwnsMemory() const override { return exclusive_; }
  void FillAllocationDescription(tensorflow::AllocationDescription* description) const override {
    description->set_requested_bytes(static_cast<int64_t>(bytes_));
    description->set_allocated_bytes(static_cast<int64_t>(bytes_));
    description->set_allocator_name("rdmabatch");
  }

 private:
  const std::shared_ptr<void> owner_;
  const size_t bytes_;
  const bool exclusive_;
};

}  // namespace

tensorflow::Tensor TensorOver(tensorflow::DataType dtype, const tensorflow::TensorShape& shape,
                              std::shared_ptr<void> owner, void* data, bool exclusive) {
  const size_t bytes = shape.num_elements() * tensorflow::DataTypeSize(dtype);
  return {dtype, shape,
          tensorflow::core::RefCountPtr<tensorflow::TensorBuffer>(
              new OwnedBuffer(std::move(owner), data, bytes, exclusive))};
}

}  // namespace rdmabatch::ops
