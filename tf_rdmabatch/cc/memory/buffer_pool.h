// BufferPool: buffers of one size that are used again, since memory that the kernel has to map and
// clear first costs several times the copy into it.
#ifndef TF_RDMABATCH_CC_MEMORY_BUFFER_POOL_H_
#define TF_RDMABATCH_CC_MEMORY_BUFFER_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tf_rdmabatch/cc/base/export.h"

namespace rdmabatch {

// Thread-safe. Made by Create, since the buffers keep it.
class RDMABATCH_EXPORT BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  // Keeps up to `keep` buffers that nobody uses.
  static std::shared_ptr<BufferPool> Create(uint64_t bytes, size_t keep) {
    return std::shared_ptr<BufferPool>(new BufferPool(bytes, keep));
  }
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  uint64_t bytes() const { return bytes_; }
  // A buffer with any content, its pages touched, aligned to 64 bytes or to pages; it comes back
  // with the last pointer. Null when there is no memory.
  std::shared_ptr<uint8_t> Take();

 private:
  BufferPool(uint64_t bytes, size_t keep) : bytes_(bytes), keep_(keep) {}
  void GiveBack(uint8_t* buffer);

  const uint64_t bytes_;
  const size_t keep_;
  std::mutex mutex_;
  std::vector<uint8_t*> free_;  // mutex_
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_MEMORY_BUFFER_POOL_H_
