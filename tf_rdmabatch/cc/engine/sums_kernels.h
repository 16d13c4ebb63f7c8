// The kernels behind sums.h, one table per instruction set.
//
// This header is compiled with several instruction sets, so nothing in it may be shared between
// object files: the templates are only instantiated with types of an unnamed namespace, which makes
// their code local to each file.
#ifndef TF_RDMABATCH_CC_ENGINE_SUMS_KERNELS_H_
#define TF_RDMABATCH_CC_ENGINE_SUMS_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rdmabatch {

using AddKernel = void (*)(void* accumulator, const void* source, size_t count);
using SumStreamKernel = void (*)(void* destination, const void* a, const void* b, size_t count);
using CopyStreamKernel = void (*)(void* destination, const void* source, size_t bytes);

struct SumKernels {
  AddKernel add[6];  // by DType
  SumStreamKernel sum_stream[6];
  CopyStreamKernel copy_stream;
};

enum class SimdLevel { kGeneric, kAvx2, kAvx512 };

// Null when this CPU or this build does not have the level.
const SumKernels* SumKernelsOf(SimdLevel level);

extern const SumKernels kGenericSums;
extern const SumKernels kAvx2Sums;
extern const SumKernels kAvx512Sums;

// to[i] = a[i] + b[i]. `Step::Sum` does it for kBytes bytes of elements, whatever their alignment;
// `to` may be `a`. A rest goes through padded copies, so that every element sees the same
// instructions.
template <typename Step>
inline void SumBytes(uint8_t* to, const uint8_t* a, const uint8_t* b, size_t bytes) {
  for (; bytes >= Step::kBytes; bytes -= Step::kBytes) {
    Step::Sum(to, a, b);
    to += Step::kBytes;
    a += Step::kBytes;
    b += Step::kBytes;
  }
  if (bytes == 0) return;
  uint8_t padded_a[Step::kBytes] = {};
  uint8_t padded_b[Step::kBytes] = {};
  std::memcpy(padded_a, a, bytes);
  std::memcpy(padded_b, b, bytes);
  Step::Sum(padded_a, padded_a, padded_b);
  std::memcpy(to, padded_a, bytes);
}

template <typename Step>
void AddLoop(void* accumulator, const void* source, size_t count) {
  uint8_t* to = static_cast<uint8_t*>(accumulator);
  SumBytes<Step>(to, to, static_cast<const uint8_t*>(source), count * Step::kElementBytes);
}

// `Step::SumStream` is Sum to an address aligned to kBytes, past the caches; `Step::Fence` orders
// such stores.
template <typename Step>
void SumStreamLoop(void* destination, const void* first, const void* second, size_t count) {
  uint8_t* to = static_cast<uint8_t*>(destination);
  const uint8_t* a = static_cast<const uint8_t*>(first);
  const uint8_t* b = static_cast<const uint8_t*>(second);
  size_t bytes = count * Step::kElementBytes;
  size_t head = -reinterpret_cast<uintptr_t>(to) % Step::kBytes;
  // Elements that straddle the vectors' borders cannot be streamed.
  if (head > bytes || head % Step::kElementBytes != 0) head = bytes;
  SumBytes<Step>(to, a, b, head);
  to += head;
  a += head;
  b += head;
  bytes -= head;
  for (; bytes >= Step::kBytes; bytes -= Step::kBytes) {
    Step::SumStream(to, a, b);
    to += Step::kBytes;
    a += Step::kBytes;
    b += Step::kBytes;
  }
  SumBytes<Step>(to, a, b, bytes);
  Step::Fence();
}

// `Step::Copy` copies kBytes bytes to an address aligned to kBytes, past the caches.
template <typename Step>
void CopyStreamLoop(void* destination, const void* source, size_t bytes) {
  uint8_t* to = static_cast<uint8_t*>(destination);
  const uint8_t* from = static_cast<const uint8_t*>(source);
  size_t head = -reinterpret_cast<uintptr_t>(to) % Step::kBytes;
  if (head > bytes) head = bytes;
  std::memcpy(to, from, head);
  to += head;
  from += head;
  bytes -= head;
  for (; bytes >= Step::kBytes; bytes -= Step::kBytes) {
    Step::Copy(to, from);
    to += Step::kBytes;
    from += Step::kBytes;
  }
  std::memcpy(to, from, bytes);
  Step::Fence();
}

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_SUMS_KERNELS_H_
