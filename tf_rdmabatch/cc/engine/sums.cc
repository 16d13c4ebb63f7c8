#include "tf_rdmabatch/cc/engine/sums.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "tf_rdmabatch/cc/engine/sums_kernels.h"

namespace rdmabatch {
namespace {

static_assert(sizeof(SumKernels::add) / sizeof(AddKernel) == kDTypeCount);

// Where writing past the caches begins to pay, measured.
constexpr size_t kStreamBytes = 16 << 10;

template <typename T>
struct SumScalar {
  static constexpr size_t kElementBytes = sizeof(T);
  static constexpr size_t kBytes = sizeof(T);
  static void Sum(uint8_t* to, const uint8_t* a, const uint8_t* b) {
    T x, y;
    std::memcpy(&x, a, sizeof(T));
    std::memcpy(&y, b, sizeof(T));
    x += y;
    std::memcpy(to, &x, sizeof(T));
  }
};

float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

struct Half {
  static float ToFloat(uint16_t half) {
    uint32_t sign = uint32_t{half & 0x8000u} << 16;
    uint32_t magnitude = half & 0x7fffu;
    if (magnitude >= 0x7c00) return FloatOf(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    // Scaling by 2^112 moves the exponent bias from 15 to 127, and makes subnormal numbers normal.
    return FloatOf(sign | BitsOf(FloatOf(magnitude << 13) * 0x1p112f));
  }

  static uint16_t FromFloat(float value) {
    uint32_t bits = BitsOf(value);
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return sign | 0x7e00 | (magnitude >> 13 & 0x3ff);
    if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds to infinity
    if (magnitude < 0x38800000) {
      // Subnormal: adding 0.5 leaves exactly the bits that a half keeps, rounded by the addition
      // itself.
      return sign | (BitsOf(FloatOf(magnitude) + 0.5f) - 0x3f000000);
    }
    uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return sign | (rounded - (112u << 23)) >> 13;
  }
};

struct Brain {
  static float ToFloat(uint16_t brain) { return FloatOf(uint32_t{brain} << 16); }

  static uint16_t FromFloat(float value) {
    uint32_t bits = BitsOf(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return bits >> 16;  // quiet, as every sum
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  }
};

template <typename Format>
struct SumShort {
  static constexpr size_t kElementBytes = 2;
  static constexpr size_t kBytes = 2;
  static void Sum(uint8_t* to, const uint8_t* a, const uint8_t* b) {
    uint16_t x, y;
    std::memcpy(&x, a, sizeof(x));
    std::memcpy(&y, b, sizeof(y));
    x = Format::FromFloat(Format::ToFloat(x) + Format::ToFloat(y));
    std::memcpy(to, &x, sizeof(x));
  }
};

template <typename Step>
void PlainSum(void* destination, const void* a, const void* b, size_t count) {
  SumBytes<Step>(static_cast<uint8_t*>(destination), static_cast<const uint8_t*>(a),
                 static_cast<const uint8_t*>(b), count * Step::kElementBytes);
}

void PlainCopy(void* destination, const void* source, size_t bytes) {
  std::memcpy(destination, source, bytes);
}

SimdLevel BestLevel() {
  for (SimdLevel level : {SimdLevel::kAvx512, SimdLevel::kAvx2}) {
    if (SumKernelsOf(level) != nullptr) return level;
  }
  return SimdLevel::kGeneric;
}

const SumKernels& Kernels() {
  static const SumKernels& kernels = *SumKernelsOf(BestLevel());
  return kernels;
}

}  // namespace

const SumKernels kGenericSums = {
    {AddLoop<SumScalar<float>>, AddLoop<SumScalar<double>>, AddLoop<SumShort<Half>>,
     AddLoop<SumShort<Brain>>, AddLoop<SumScalar<uint32_t>>, AddLoop<SumScalar<uint64_t>>},
    {PlainSum<SumScalar<float>>, PlainSum<SumScalar<double>>, PlainSum<SumShort<Half>>,
     PlainSum<SumShort<Brain>>, PlainSum<SumScalar<uint32_t>>, PlainSum<SumScalar<uint64_t>>},
    PlainCopy};

const SumKernels* SumKernelsOf(SimdLevel level) {
  if (level == SimdLevel::kGeneric) return &kGenericSums;
#if defined(__x86_64__)
  unsigned eax, ebx, ecx, edx;
  bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  if (!f16c || !__builtin_cpu_supports("avx2")) return nullptr;
  if (level == SimdLevel::kAvx2) return &kAvx2Sums;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    return &kAvx512Sums;
  }
#endif
  return nullptr;
}

void AddInto(DType dtype, void* accumulator, const void* source, size_t count) {
  Kernels().add[static_cast<size_t>(dtype)](accumulator, source, count);
}

void SumStream(DType dtype, void* destination, const void* a, const void* b, size_t count) {
  Kernels().sum_stream[static_cast<size_t>(dtype)](destination, a, b, count);
}

void CopyStream(void* destination, const void* source, size_t bytes) {
  if (bytes < kStreamBytes) {
    if (bytes != 0) std::memcpy(destination, source, bytes);  // memcpy may not be given null
  } else {
    Kernels().copy_stream(destination, source, bytes);
  }
}

}  // namespace rdmabatch
