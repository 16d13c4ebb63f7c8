// FreeMemory: deletes what the C library allocated (calloc, aligned_alloc).
#ifndef TF_RDMABATCH_CC_BASE_FREE_MEMORY_H_
#define TF_RDMABATCH_CC_BASE_FREE_MEMORY_H_

#include <cstdint>
#include <cstdlib>

namespace rdmabatch {

struct FreeMemory {
  void operator()(uint8_t* memory) const { std::free(memory); }
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_BASE_FREE_MEMORY_H_
