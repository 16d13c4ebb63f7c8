// Where a server's published parameters lie: regions that peers may read.
#ifndef TF_RDMABATCH_CC_ENGINE_STORE_MEMORY_H_
#define TF_RDMABATCH_CC_ENGINE_STORE_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/engine/engine.h"
#include "tf_rdmabatch/cc/engine/store_wire.h"

namespace rdmabatch {

// A parameter's part of a region.
struct PublishedPlace {
  std::shared_ptr<Region> region;
  PublishedLayout layout;

  std::atomic<uint64_t>* words(uint64_t version) const {
    static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));
    return reinterpret_cast<std::atomic<uint64_t>*>(region->data() + layout.WordsOf(version));
  }
  uint8_t* data(uint64_t version) const { return region->data() + layout.DataOf(version); }
};

// Small parameters share regions, since each region costs a registration and a descriptor a peer;
// large ones have their own. Nothing is given back before the last place is gone. One thread at a
// time; control path.
class PublishedMemory {
 public:
  // Zeroed memory for the versions that the parameter keeps.
  Result<PublishedPlace> Allocate(Engine* engine, const ParameterInfo& info);

 private:
  std::shared_ptr<Region> chunk_;
  uint64_t used_ = 0;
  uint64_t next_chunk_bytes_ = 1 << 20;
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_STORE_MEMORY_H_
