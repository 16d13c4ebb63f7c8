#include "tf_rdmabatch/cc/engine/dtype.h"

#include <gtest/gtest.h>

namespace rdmabatch {
namespace {

TEST(DTypeTest, NumbersNamesAndSizes) {
  const struct {
    DType dtype;
    uint8_t number;
    const char* name;
    size_t size;
  } all[] = {{DType::kFloat32, 0, "float32", 4}, {DType::kFloat64, 1, "float64", 8},
             {DType::kFloat16, 2, "float16", 2}, {DType::kBfloat16, 3, "bfloat16", 2},
             {DType::kInt32, 4, "int32", 4},     {DType::kInt64, 5, "int64", 8}};
  EXPECT_EQ(std::size(all), kDTypeCount);
  for (const auto& c : all) {
    EXPECT_EQ(static_cast<uint8_t>(c.dtype), c.number);
    EXPECT_EQ(DTypeFromNumber(c.number), c.dtype);
    EXPECT_EQ(DTypeName(c.dtype), c.name);
    EXPECT_EQ(DTypeFromName(c.name), c.dtype);
    EXPECT_EQ(DTypeSize(c.dtype), c.size);
  }
}

TEST(DTypeTest, UnknownOnesAreRefused) {
  EXPECT_FALSE(DTypeFromNumber(6).has_value());
  EXPECT_FALSE(DTypeFromNumber(255).has_value());
  EXPECT_FALSE(DTypeFromName("float8").has_value());
  EXPECT_FALSE(DTypeFromName("").has_value());
  EXPECT_FALSE(DTypeFromName("float32 ").has_value());
}

}  // namespace
}  // namespace rdmabatch
