#include "ops/kernels/status.h"

#include <string>

namespace rdmabatch::ops {
namespace {

absl::StatusCode CodeOf(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return absl::StatusCode::kOk;
    case StatusCode::kInvalidArgument:
      return absl::StatusCode::kInvalidArgument;
    case StatusCode::kFailedPrecondition:
      return absl::StatusCode::kFailedPrecondition;
    case StatusCode::kNotFound:
      return absl::StatusCode::kNotFound;
    case StatusCode::kAlreadyExists:
      return absl::StatusCode::kAlreadyExists;
    case StatusCode::kOutOfRange:
      return absl::StatusCode::kOutOfRange;
    case StatusCode::kPermissionDenied:
      return absl::StatusCode::kPermissionDenied;
    case StatusCode::kResourceExhausted:
      return absl::StatusCode::kResourceExhausted;
    case StatusCode::kDeadlineExceeded:
      return absl::StatusCode::kDeadlineExceeded;
    case StatusCode::kUnavailable:
      return absl::StatusCode::kUnavailable;
    case StatusCode::kCancelled:
      return absl::StatusCode::kCancelled;
    case StatusCode::kDataLoss:
      return absl::StatusCode::kDataLoss;
    case StatusCode::kUnimplemented:
      return absl::StatusCode::kUnimplemented;
    case StatusCode::kInternal:
      return absl::StatusCode::kInternal;
  }
  return absl::StatusCode::kInternal;
}

}  // namespace

absl::Status ToAbsl(const Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(CodeOf(status.code()), status.message());
}

// What TensorFlow's own calls in a kernel return: wrong inputs, or no memory.
Status FromAbsl(const absl::Status& status) {
  if (status.ok()) return Status::Ok();
  const StatusCode code = absl::IsResourceExhausted(status) ? StatusCode::kResourceExhausted
                                                            : StatusCode::kInvalidArgument;
  return {code, std::string(status.message())};
}

std::optional<DType> FromTensorFlow(tensorflow::DataType dtype) {
  switch (dtype) {
    case tensorflow::DT_FLOAT:
      return DType::kFloat32;
    case tensorflow::DT_DOUBLE:
      return DType::kFloat64;
    case tensorflow::DT_HALF:
      return DType::kFloat16;
    case tensorflow::DT_BFLOAT16:
      return DType::kBfloat16;
    case tensorflow::DT_INT32:
      return DType::kInt32;
    case tensorflow::DT_INT64:
      return DType::kInt64;
    default:
      return std::nullopt;
  }
}

}  // namespace rdmabatch::ops
