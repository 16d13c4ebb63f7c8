// Bitmap words in memory that a peer writes.
#ifndef TF_RDMABATCH_CC_ENGINE_LANE_WORDS_H_
#define TF_RDMABATCH_CC_ENGINE_LANE_WORDS_H_

#include <cstdint>

namespace rdmabatch {

inline uint64_t LoadWord(const uint8_t* address) {
  return __atomic_load_n(reinterpret_cast<const uint64_t*>(address), __ATOMIC_ACQUIRE);
}

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_LANE_WORDS_H_
