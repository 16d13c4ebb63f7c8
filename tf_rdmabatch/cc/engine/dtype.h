// Element types of parameters. The numbers go over the wire and never change.
#ifndef TF_RDMABATCH_CC_ENGINE_DTYPE_H_
#define TF_RDMABATCH_CC_ENGINE_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace rdmabatch {

enum class DType : uint8_t { kFloat32, kFloat64, kFloat16, kBfloat16, kInt32, kInt64 };

inline constexpr size_t kDTypeCount = 6;

// For a number that came from a peer.
inline std::optional<DType> DTypeFromNumber(uint8_t number) {
  if (number >= kDTypeCount) return std::nullopt;
  return static_cast<DType>(number);
}

inline constexpr size_t DTypeSize(DType dtype) {
  constexpr size_t kSizes[kDTypeCount] = {4, 8, 2, 2, 4, 8};
  return kSizes[static_cast<size_t>(dtype)];
}

// As NumPy and TensorFlow write them.
inline constexpr std::string_view DTypeName(DType dtype) {
  constexpr std::string_view kNames[kDTypeCount] = {"float32",  "float64", "float16",
                                                    "bfloat16", "int32",   "int64"};
  return kNames[static_cast<size_t>(dtype)];
}

inline std::optional<DType> DTypeFromName(std::string_view name) {
  for (uint8_t number = 0; number < kDTypeCount; ++number) {
    DType dtype = static_cast<DType>(number);
    if (DTypeName(dtype) == name) return dtype;
  }
  return std::nullopt;
}

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_DTYPE_H_
