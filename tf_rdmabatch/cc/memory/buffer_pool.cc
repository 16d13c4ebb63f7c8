#include "tf_rdmabatch/cc/memory/buffer_pool.h"

#include <cstdlib>
#include <cstring>

#include "tf_rdmabatch/cc/base/bits.h"

namespace rdmabatch {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
constexpr size_t kMinPaged = 2 << 20;  // from here on it is a mapping of its own anyway

}  // namespace

BufferPool::~BufferPool() {
  for (uint8_t* buffer : free_) std::free(buffer);
}

std::shared_ptr<uint8_t> BufferPool::Take() {
  uint8_t* buffer = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!free_.empty()) {
      buffer = free_.back();
      free_.pop_back();
    }
  }
  if (buffer == nullptr) {
    const size_t alignment = bytes_ >= kMinPaged ? kPage : kLine;
    const size_t size = AlignUp(bytes_ == 0 ? 1 : bytes_, alignment);
    buffer = static_cast<uint8_t*>(std::aligned_alloc(alignment, size));
    if (buffer == nullptr) return nullptr;
    std::memset(buffer, 0, size);
  }
  return {buffer, [self = shared_from_this()](uint8_t* b) { self->GiveBack(b); }};
}

void BufferPool::GiveBack(uint8_t* buffer) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (free_.size() < keep_) {
      free_.push_back(buffer);
      return;
    }
  }
  std::free(buffer);
}

}  // namespace rdmabatch
