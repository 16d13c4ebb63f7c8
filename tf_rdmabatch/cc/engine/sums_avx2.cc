// Compiled with AVX2 and F16C.
#include <immintrin.h>

#include "tf_rdmabatch/cc/engine/sums_kernels.h"

namespace rdmabatch {
namespace {

__m256i Load(const uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

void Store(uint8_t* to, __m256i value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
}

struct Float32 {
  static constexpr size_t kElementBytes = 4;
  static __m256i Sum(__m256i a, __m256i b) {
    return _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)));
  }
};

struct Float64 {
  static constexpr size_t kElementBytes = 8;
  static __m256i Sum(__m256i a, __m256i b) {
    return _mm256_castpd_si256(_mm256_add_pd(_mm256_castsi256_pd(a), _mm256_castsi256_pd(b)));
  }
};

struct Float16 {
  static constexpr size_t kElementBytes = 2;
  static __m128i SumHalf(__m128i a, __m128i b) {
    return _mm256_cvtps_ph(_mm256_add_ps(_mm256_cvtph_ps(a), _mm256_cvtph_ps(b)),
                           _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static __m256i Sum(__m256i a, __m256i b) {
    __m128i low = SumHalf(_mm256_castsi256_si128(a), _mm256_castsi256_si128(b));
    __m128i high = SumHalf(_mm256_extracti128_si256(a, 1), _mm256_extracti128_si256(b, 1));
    return _mm256_set_m128i(high, low);
  }
};

struct Bfloat16 {
  static constexpr size_t kElementBytes = 2;
  // Operands in the upper halves of their lanes; the sum, rounded, in the lower ones. A NaN is not
  // rounded: that of a sum is quiet, so its upper half is one as well.
  static __m256i SumLanes(__m256i a, __m256i b) {
    __m256 sum = _mm256_add_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
    __m256i bits = _mm256_castps_si256(sum);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(sum, sum, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(up, bits, nan), 16);
  }
  static __m256i Sum(__m256i a, __m256i b) {
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000));
    __m256i even = SumLanes(_mm256_slli_epi32(a, 16), _mm256_slli_epi32(b, 16));
    __m256i odd = SumLanes(_mm256_and_si256(a, upper), _mm256_and_si256(b, upper));
    return _mm256_or_si256(even, _mm256_slli_epi32(odd, 16));
  }
};

struct Int32 {
  static constexpr size_t kElementBytes = 4;
  static __m256i Sum(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }
};

struct Int64 {
  static constexpr size_t kElementBytes = 8;
  static __m256i Sum(__m256i a, __m256i b) { return _mm256_add_epi64(a, b); }
};

void Stream(uint8_t* to, __m256i value) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), value);
}

// Two vectors, one cache line, a step.
struct CopyStep {
  static constexpr size_t kBytes = 64;
  static void Copy(uint8_t* to, const uint8_t* from) {
    __m256i low = Load(from);
    __m256i high = Load(from + 32);
    Stream(to, low);
    Stream(to + 32, high);
  }
  static void Fence() { _mm_sfence(); }
};

template <typename Type>
struct SumStep {
  static constexpr size_t kElementBytes = Type::kElementBytes;
  static constexpr size_t kBytes = 64;
  static void Sum(uint8_t* to, const uint8_t* a, const uint8_t* b) {
    Store(to, Type::Sum(Load(a), Load(b)));
    Store(to + 32, Type::Sum(Load(a + 32), Load(b + 32)));
  }
  static void SumStream(uint8_t* to, const uint8_t* a, const uint8_t* b) {
    __m256i low = Type::Sum(Load(a), Load(b));
    __m256i high = Type::Sum(Load(a + 32), Load(b + 32));
    Stream(to, low);
    Stream(to + 32, high);
  }
  static void Fence() { _mm_sfence(); }
};

}  // namespace

const SumKernels kAvx2Sums = {
    {AddLoop<SumStep<Float32>>, AddLoop<SumStep<Float64>>, AddLoop<SumStep<Float16>>,
     AddLoop<SumStep<Bfloat16>>, AddLoop<SumStep<Int32>>, AddLoop<SumStep<Int64>>},
    {SumStreamLoop<SumStep<Float32>>, SumStreamLoop<SumStep<Float64>>,
     SumStreamLoop<SumStep<Float16>>, SumStreamLoop<SumStep<Bfloat16>>,
     SumStreamLoop<SumStep<Int32>>, SumStreamLoop<SumStep<Int64>>},
    CopyStreamLoop<CopyStep>};

}  // namespace rdmabatch
