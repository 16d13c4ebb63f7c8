// Bit and alignment helpers of the bitmaps.
#ifndef TF_RDMABATCH_CC_BASE_BITS_H_
#define TF_RDMABATCH_CC_BASE_BITS_H_

#include <cstdint>

namespace rdmabatch {

inline constexpr uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

inline int PopCount(uint64_t word) { return __builtin_popcountll(word); }

// Index of the lowest set bit; `word` must not be 0.
inline int LowestBit(uint64_t word) { return __builtin_ctzll(word); }

// Calls visit(index) for each set bit, lowest first.
template <typename Visit>
inline void ForEachBit(uint64_t word, Visit&& visit) {
  while (word != 0) {
    visit(LowestBit(word));
    word &= word - 1;
  }
}

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_BASE_BITS_H_
