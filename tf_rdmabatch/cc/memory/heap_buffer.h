// HeapBuffer: memory for a tensor.
#ifndef TF_RDMABATCH_CC_MEMORY_HEAP_BUFFER_H_
#define TF_RDMABATCH_CC_MEMORY_HEAP_BUFFER_H_

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tf_rdmabatch/cc/base/bits.h"

namespace rdmabatch {

class HeapBuffer {
 public:
  // Zeroed, so that whoever uses it first meets no page faults; aligned to a cache line, or to a
  // page where it has pages of its own anyway. Null when there is no memory.
  static std::unique_ptr<HeapBuffer> Create(uint64_t bytes) {
    constexpr uint64_t kLine = 64;
    constexpr uint64_t kPage = 4096;
    constexpr uint64_t kMinPaged = 2 << 20;
    const uint64_t alignment = bytes >= kMinPaged ? kPage : kLine;
    const uint64_t size = AlignUp(bytes == 0 ? 1 : bytes, alignment);
    auto* data = static_cast<uint8_t*>(std::aligned_alloc(alignment, size));
    if (data == nullptr) return nullptr;
    std::memset(data, 0, size);
    return std::unique_ptr<HeapBuffer>(new HeapBuffer(data));
  }
  ~HeapBuffer() { std::free(data_); }
  HeapBuffer(const HeapBuffer&) = delete;
  HeapBuffer& operator=(const HeapBuffer&) = delete;

  uint8_t* data() const { return data_; }

 private:
  explicit HeapBuffer(uint8_t* data) : data_(data) {}

  uint8_t* const data_;
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_MEMORY_HEAP_BUFFER_H_
