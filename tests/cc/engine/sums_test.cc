#include "tf_rdmabatch/cc/engine/sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "tf_rdmabatch/cc/engine/sums_kernels.h"

namespace rdmabatch {
namespace {

constexpr DType kAllDTypes[] = {DType::kFloat32,  DType::kFloat64, DType::kFloat16,
                                DType::kBfloat16, DType::kInt32,   DType::kInt64};

// A 16-bit floating-point format, by its definition: nothing here is shared with the code under
// test.
struct ShortFormat {
  int exponent_bits;
  int mantissa_bits;

  uint16_t infinity() const { return ((1 << exponent_bits) - 1) << mantissa_bits; }
  bool IsNan(uint16_t bits) const { return (bits & 0x7fff) > infinity(); }

  double Value(uint16_t bits) const {
    double sign = bits & 0x8000 ? -1 : 1;
    int magnitude = bits & 0x7fff;
    if (IsNan(bits)) return std::numeric_limits<double>::quiet_NaN();
    if (magnitude == infinity()) return sign * std::numeric_limits<double>::infinity();
    int bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = magnitude >> mantissa_bits;
    int mantissa = magnitude & ((1 << mantissa_bits) - 1);
    if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
  }

  // The nearest value of the format, of two the even one. Magnitudes are ordered as their bits are.
  uint16_t Round(double value) const {
    uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    if (std::isnan(value)) return sign | infinity() | 1;
    value = std::abs(value);
    int bias = (1 << (exponent_bits - 1)) - 1;
    double beyond = std::ldexp(1, bias + 1);  // where the value after the largest one would be
    int low = 0;
    int high = infinity();
    while (high - low > 1) {
      int middle = (low + high) / 2;
      (Value(middle) <= value ? low : high) = middle;
    }
    double above = high == infinity() ? beyond : Value(high);
    double to_low = value - Value(low);
    double to_high = above - value;
    bool up = to_high < to_low || (to_high == to_low && low % 2 == 1);
    return sign | (up ? high : low);
  }

  uint16_t Sum(uint16_t a, uint16_t b) const { return Round(Value(a) + Value(b)); }
};

constexpr ShortFormat kHalf{5, 10};
constexpr ShortFormat kBrain{8, 7};

template <typename T>
void ScalarSum(uint8_t* to, const uint8_t* a, const uint8_t* b) {
  T x, y;
  std::memcpy(&x, a, sizeof(T));
  std::memcpy(&y, b, sizeof(T));
  T sum = x + y;
  std::memcpy(to, &sum, sizeof(T));
}

void ScalarSum(DType dtype, uint8_t* to, const uint8_t* a, const uint8_t* b) {
  switch (dtype) {
    case DType::kFloat32:
      return ScalarSum<float>(to, a, b);
    case DType::kFloat64:
      return ScalarSum<double>(to, a, b);
    case DType::kInt32:
      return ScalarSum<uint32_t>(to, a, b);
    case DType::kInt64:
      return ScalarSum<uint64_t>(to, a, b);
    case DType::kFloat16:
    case DType::kBfloat16:
      break;
  }
  uint16_t x, y;
  std::memcpy(&x, a, 2);
  std::memcpy(&y, b, 2);
  uint16_t sum = (dtype == DType::kFloat16 ? kHalf : kBrain).Sum(x, y);
  std::memcpy(to, &sum, 2);
}

bool IsNan(DType dtype, const uint8_t* element) {
  uint64_t bits = 0;
  std::memcpy(&bits, element, DTypeSize(dtype));
  switch (dtype) {
    case DType::kFloat32:
      return (bits & 0x7fffffff) > 0x7f800000;
    case DType::kFloat64:
      return (bits & 0x7fffffffffffffff) > 0x7ff0000000000000;
    case DType::kFloat16:
      return kHalf.IsNan(static_cast<uint16_t>(bits));
    case DType::kBfloat16:
      return kBrain.IsNan(static_cast<uint16_t>(bits));
    default:
      return false;
  }
}

// Which NaN a sum gives is left to the hardware; everything else is compared bit by bit.
::testing::AssertionResult SameElements(DType dtype, const uint8_t* a, const uint8_t* b,
                                        size_t count) {
  size_t size = DTypeSize(dtype);
  for (size_t i = 0; i < count; ++i, a += size, b += size) {
    if (std::memcmp(a, b, size) == 0 || (IsNan(dtype, a) && IsNan(dtype, b))) continue;
    uint64_t x = 0, y = 0;
    std::memcpy(&x, a, size);
    std::memcpy(&y, b, size);
    return ::testing::AssertionFailure() << DTypeName(dtype) << " element " << i << " of " << count
                                         << std::hex << ": " << x << ", should be " << y;
  }
  return ::testing::AssertionSuccess();
}

// Random elements, with every kind of special value among them.
void FillElements(DType dtype, uint8_t* to, size_t count, std::mt19937_64& random) {
  size_t size = DTypeSize(dtype);
  int mantissa = 0, width = static_cast<int>(size) * 8;
  switch (dtype) {
    case DType::kFloat32:
      mantissa = 23;
      break;
    case DType::kFloat64:
      mantissa = 52;
      break;
    case DType::kFloat16:
      mantissa = 10;
      break;
    case DType::kBfloat16:
      mantissa = 7;
      break;
    default:
      break;
  }
  uint64_t fraction = (uint64_t{1} << mantissa) - 1;
  uint64_t infinity = ((uint64_t{1} << (width - 1)) - 1) & ~fraction;
  for (size_t i = 0; i < count; ++i, to += size) {
    uint64_t bits = random();
    if (mantissa != 0) {
      uint64_t sign = (bits & 1) << (width - 1);
      switch (random() % 12) {
        case 0:
          bits = sign;
          break;  // zero
        case 1:
          bits = sign | infinity;
          break;  // infinity
        case 2:
          bits = sign | infinity | (bits & fraction) | 1;
          break;  // NaN
        case 3:
          bits = sign | (bits >> 1 & fraction);
          break;  // subnormal
        case 4:
          bits = sign | (infinity - 1);
          break;  // largest
        case 5:   // near 1, where ties are frequent
        case 6:
          bits = sign | ((infinity >> 1 & ~fraction) + (bits >> 1 & fraction));
          break;
        default:
          break;
      }
    }
    std::memcpy(to, &bits, size);
  }
}

// `bytes` at an address `offset` past a 64-byte border, ending where its allocation ends.
class Placed {
 public:
  Placed(size_t bytes, size_t offset)
      : memory_(Allocate(offset + bytes), std::free), offset_(offset) {
    std::memset(memory_.get(), 0xa5, offset + bytes);
  }
  uint8_t* data() const { return memory_.get() + offset_; }
  bool front_untouched() const {
    for (size_t i = 0; i < offset_; ++i) {
      if (memory_.get()[i] != 0xa5) return false;
    }
    return true;
  }

 private:
  static uint8_t* Allocate(size_t bytes) {
    void* start = nullptr;
    if (posix_memalign(&start, 64, std::max<size_t>(bytes, 1)) != 0) throw std::bad_alloc();
    return static_cast<uint8_t*>(start);
  }

  std::unique_ptr<uint8_t, decltype(&std::free)> memory_;
  size_t offset_;
};

class SumsTest : public ::testing::TestWithParam<SimdLevel> {
 protected:
  void SetUp() override {
    kernels_ = SumKernelsOf(GetParam());
    if (kernels_ == nullptr) GTEST_SKIP() << "this CPU does not have these instructions";
  }
  AddKernel Add(DType dtype) const { return kernels_->add[static_cast<size_t>(dtype)]; }
  SumStreamKernel Sum(DType dtype) const {
    return kernels_->sum_stream[static_cast<size_t>(dtype)];
  }

  const SumKernels* kernels_ = nullptr;
};

TEST_P(SumsTest, AgreesWithScalarSumsAtEveryCountAndAlignment) {
  std::mt19937_64 random(11);
  for (DType dtype : kAllDTypes) {
    size_t size = DTypeSize(dtype);
    for (size_t count : {0, 1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129, 1000}) {
      for (size_t offset : {size_t{0}, size, size_t{1}, size_t{32}, size_t{61}}) {
        size_t bytes = count * size;
        Placed a(bytes, offset);
        Placed b(bytes, random() % 64);
        Placed sum(bytes, random() % 64);
        Placed aligned_sum(bytes, offset);
        std::vector<uint8_t> expected(bytes);
        FillElements(dtype, a.data(), count, random);
        FillElements(dtype, b.data(), count, random);
        for (size_t i = 0; i < bytes; i += size) {
          ScalarSum(dtype, &expected[i], a.data() + i, b.data() + i);
        }
        Sum(dtype)(sum.data(), a.data(), b.data(), count);
        Sum(dtype)(aligned_sum.data(), a.data(), b.data(), count);
        Add(dtype)(a.data(), b.data(), count);
        for (const Placed* result : {&a, &sum, &aligned_sum}) {
          ASSERT_TRUE(SameElements(dtype, result->data(), expected.data(), count))
              << "offset " << offset;
          ASSERT_TRUE(result->front_untouched());
        }
      }
    }
  }
}

TEST_P(SumsTest, TouchesNothingBehind) {
  for (DType dtype : kAllDTypes) {
    for (size_t count = 0; count < 70; ++count) {
      size_t bytes = count * DTypeSize(dtype);
      std::vector<uint8_t> to(bytes + 64, 0x5a), from(bytes + 64, 0);
      Add(dtype)(to.data(), from.data(), count);
      std::vector<uint8_t> streamed(bytes + 64, 0x5a);
      Sum(dtype)(streamed.data(), to.data(), from.data(), count);
      for (size_t i = bytes; i < bytes + 64; ++i) {
        ASSERT_EQ(to[i], 0x5a);
        ASSERT_EQ(streamed[i], 0x5a);
      }
    }
  }
}

// All 65536 values of a short format against values of every kind.
TEST_P(SumsTest, ShortFloatsAreRoundedCorrectly) {
  std::mt19937_64 random(3);
  for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    const ShortFormat& format = dtype == DType::kFloat16 ? kHalf : kBrain;
    uint16_t one = (format.infinity() >> 1) & ~((1 << format.mantissa_bits) - 1);
    std::vector<uint16_t> others = {0,
                                    0x8000,
                                    1,
                                    0x8001,
                                    2,
                                    3,
                                    static_cast<uint16_t>(1 << format.mantissa_bits),
                                    one,
                                    static_cast<uint16_t>(one | 0x8000),
                                    static_cast<uint16_t>(one + 1),
                                    format.infinity(),
                                    static_cast<uint16_t>(format.infinity() | 0x8000),
                                    static_cast<uint16_t>(format.infinity() - 1),
                                    static_cast<uint16_t>((format.infinity() - 1) | 0x8000),
                                    static_cast<uint16_t>(format.infinity() + 1)};
    for (int i = 0; i < 8; ++i) others.push_back(static_cast<uint16_t>(random()));
    std::vector<uint16_t> expected(65536), sum(65536), other(65536);
    for (uint16_t b : others) {
      for (int a = 0; a < 65536; ++a) {
        sum[a] = static_cast<uint16_t>(a);
        other[a] = b;
        expected[a] = format.Sum(static_cast<uint16_t>(a), b);
      }
      Add(dtype)(sum.data(), other.data(), sum.size());
      ASSERT_TRUE(SameElements(dtype, reinterpret_cast<uint8_t*>(sum.data()),
                               reinterpret_cast<uint8_t*>(expected.data()), sum.size()))
          << "plus " << std::hex << b;
    }
  }
}

TEST_P(SumsTest, SpecialSums) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float tiny = std::numeric_limits<float>::denorm_min();
  std::vector<float> to = {infinity, infinity, 1, -0.0f, -0.0f, tiny, 3e38f, 1};
  const std::vector<float> from = {1, -infinity, NAN, -0.0f, 0.0f, tiny, 3e38f, 0x1p-24f};
  Add(DType::kFloat32)(to.data(), from.data(), to.size());
  EXPECT_EQ(to[0], infinity);
  EXPECT_TRUE(std::isnan(to[1]));
  EXPECT_TRUE(std::isnan(to[2]));
  EXPECT_TRUE(to[3] == 0 && std::signbit(to[3]));
  EXPECT_TRUE(to[4] == 0 && !std::signbit(to[4]));
  EXPECT_EQ(to[5], 2 * tiny);
  EXPECT_EQ(to[6], infinity);
  EXPECT_EQ(to[7], 1);  // a tie, to the even one

  int32_t narrow[] = {std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()};
  const int32_t narrow_step[] = {1, -1};
  Add(DType::kInt32)(narrow, narrow_step, 2);
  EXPECT_EQ(narrow[0], std::numeric_limits<int32_t>::min());
  EXPECT_EQ(narrow[1], std::numeric_limits<int32_t>::max());
  int64_t wide[] = {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
  const int64_t wide_step[] = {1, -1};
  Add(DType::kInt64)(wide, wide_step, 2);
  EXPECT_EQ(wide[0], std::numeric_limits<int64_t>::min());
  EXPECT_EQ(wide[1], std::numeric_limits<int64_t>::max());
}

TEST_P(SumsTest, StreamsExactCopies) {
  std::mt19937_64 random(5);
  for (size_t bytes : {0, 1, 31, 63, 64, 65, 127, 4096, 5001}) {
    for (size_t offset : {0, 1, 32, 63}) {
      Placed from(bytes, random() % 64);
      Placed to(bytes, offset);
      for (size_t i = 0; i < bytes; ++i) from.data()[i] = static_cast<uint8_t>(random());
      kernels_->copy_stream(to.data(), from.data(), bytes);
      ASSERT_EQ(std::memcmp(to.data(), from.data(), bytes), 0) << bytes << " at " << offset;
      ASSERT_TRUE(to.front_untouched());
      std::vector<uint8_t> guarded(bytes + 64, 0x5a);
      kernels_->copy_stream(guarded.data(), from.data(), bytes);
      for (size_t i = bytes; i < bytes + 64; ++i) ASSERT_EQ(guarded[i], 0x5a);
    }
  }
}

std::string LevelName(const ::testing::TestParamInfo<SimdLevel>& info) {
  constexpr const char* kNames[] = {"generic", "avx2", "avx512"};
  return kNames[static_cast<size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Levels, SumsTest,
                         ::testing::Values(SimdLevel::kGeneric, SimdLevel::kAvx2,
                                           SimdLevel::kAvx512),
                         LevelName);

TEST(SumsDispatchTest, PublicFunctionsReachTheKernels) {
  std::mt19937_64 random(9);
  for (DType dtype : kAllDTypes) {
    const size_t count = 777, size = DTypeSize(dtype);
    std::vector<uint8_t> a(count * size), b(count * size), sum(count * size),
        expected(count * size);
    FillElements(dtype, a.data(), count, random);
    FillElements(dtype, b.data(), count, random);
    for (size_t i = 0; i < expected.size(); i += size) {
      ScalarSum(dtype, &expected[i], &a[i], &b[i]);
    }
    SumStream(dtype, sum.data(), a.data(), b.data(), count);
    AddInto(dtype, a.data(), b.data(), count);
    EXPECT_TRUE(SameElements(dtype, sum.data(), expected.data(), count));
    EXPECT_TRUE(SameElements(dtype, a.data(), expected.data(), count));
  }
  for (size_t bytes : {0, 100, (16 << 10) - 1, 16 << 10, (16 << 10) + 1, 1 << 20}) {
    std::vector<uint8_t> from(bytes), to(bytes + 1, 0);
    for (uint8_t& byte : from) byte = static_cast<uint8_t>(random());
    CopyStream(to.data() + 1, from.data(), bytes);
    EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin() + 1)) << bytes;
  }
}

}  // namespace
}  // namespace rdmabatch
