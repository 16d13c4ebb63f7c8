// Where a server's published parameters lie: regions that peers may read.
#ifndef TF_RDMABATCH_CC_ENGINE_STORE_MEMORY_H_
#define TF_RDMABATCH_CC_ENGINE_STORE_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/engine/engine.h"

namespace rdmabatch {

// A parameter's part of a region: a version word for each block, then the data, contiguous.
struct PublishedPlace {
  std::shared_ptr<Region> region;
  uint64_t versions_offset = 0;
  uint64_t data_offset = 0;

  std::atomic<uint64_t>* versions() const {
    static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));
    return reinterpret_cast<std::atomic<uint64_t>*>(region->data() + versions_offset);
  }
  uint8_t* data() const { return region->data() + data_offset; }
};

// Small parameters share regions, since each region costs a registration and a descriptor a peer;
// large ones have their own. Nothing is given back before the last place is gone. One thread at a
// time; control path.
class PublishedMemory {
 public:
  // Zeroed memory for `bytes` in `blocks`.
  Result<PublishedPlace> Allocate(Engine* engine, uint32_t blocks, uint64_t bytes);

 private:
  std::shared_ptr<Region> chunk_;
  uint64_t used_ = 0;
  uint64_t next_chunk_bytes_ = 1 << 20;
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_STORE_MEMORY_H_
