// Compiled with AVX-512 F, BW, VL and DQ.
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 takes the undefined operands inside its own intrinsics for mistakes (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "tf_rdmabatch/cc/engine/sums_kernels.h"

namespace rdmabatch {
namespace {

struct Float32 {
  static constexpr size_t kElementBytes = 4;
  static __m512i Sum(__m512i a, __m512i b) {
    return _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)));
  }
};

struct Float64 {
  static constexpr size_t kElementBytes = 8;
  static __m512i Sum(__m512i a, __m512i b) {
    return _mm512_castpd_si512(_mm512_add_pd(_mm512_castsi512_pd(a), _mm512_castsi512_pd(b)));
  }
};

struct Float16 {
  static constexpr size_t kElementBytes = 2;
  static __m256i SumHalf(__m256i a, __m256i b) {
    return _mm512_cvtps_ph(_mm512_add_ps(_mm512_cvtph_ps(a), _mm512_cvtph_ps(b)),
                           _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static __m512i Sum(__m512i a, __m512i b) {
    __m256i low = SumHalf(_mm512_castsi512_si256(a), _mm512_castsi512_si256(b));
    __m256i high = SumHalf(_mm512_extracti64x4_epi64(a, 1), _mm512_extracti64x4_epi64(b, 1));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
};

struct Bfloat16 {
  static constexpr size_t kElementBytes = 2;
  // Operands in the upper halves of their lanes; the sum, rounded, in the upper halves, with any
  // bits below. A NaN is not rounded: that of a sum is quiet, so its upper half is one as well.
  static __m512i SumLanes(__m512i a, __m512i b) {
    __m512 sum = _mm512_add_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b));
    __m512i bits = _mm512_castps_si512(sum);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 nan = _mm512_cmp_ps_mask(sum, sum, _CMP_UNORD_Q);
    return _mm512_mask_mov_epi32(up, nan, bits);
  }
  static __m512i Sum(__m512i a, __m512i b) {
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
    __m512i even = SumLanes(_mm512_slli_epi32(a, 16), _mm512_slli_epi32(b, 16));
    __m512i odd = SumLanes(_mm512_and_si512(a, upper), _mm512_and_si512(b, upper));
    return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(even, 16), odd);
  }
};

struct Int32 {
  static constexpr size_t kElementBytes = 4;
  static __m512i Sum(__m512i a, __m512i b) { return _mm512_add_epi32(a, b); }
};

struct Int64 {
  static constexpr size_t kElementBytes = 8;
  static __m512i Sum(__m512i a, __m512i b) { return _mm512_add_epi64(a, b); }
};

struct CopyStep {
  static constexpr size_t kBytes = 64;
  static void Copy(uint8_t* to, const uint8_t* from) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
  }
  static void Fence() { _mm_sfence(); }
};

template <typename Type>
struct SumStep {
  static constexpr size_t kElementBytes = Type::kElementBytes;
  static constexpr size_t kBytes = 64;
  static void Sum(uint8_t* to, const uint8_t* a, const uint8_t* b) {
    _mm512_storeu_si512(to, Type::Sum(_mm512_loadu_si512(a), _mm512_loadu_si512(b)));
  }
  static void SumStream(uint8_t* to, const uint8_t* a, const uint8_t* b) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to),
                        Type::Sum(_mm512_loadu_si512(a), _mm512_loadu_si512(b)));
  }
  static void Fence() { _mm_sfence(); }
};

}  // namespace

const SumKernels kAvx512Sums = {
    {AddLoop<SumStep<Float32>>, AddLoop<SumStep<Float64>>, AddLoop<SumStep<Float16>>,
     AddLoop<SumStep<Bfloat16>>, AddLoop<SumStep<Int32>>, AddLoop<SumStep<Int64>>},
    {SumStreamLoop<SumStep<Float32>>, SumStreamLoop<SumStep<Float64>>,
     SumStreamLoop<SumStep<Float16>>, SumStreamLoop<SumStep<Bfloat16>>,
     SumStreamLoop<SumStep<Int32>>, SumStreamLoop<SumStep<Int64>>},
    CopyStreamLoop<CopyStep>};

}  // namespace rdmabatch
