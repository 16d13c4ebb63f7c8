// IdSet and IdTable: small integers, added to by one thread at a time, looked up by others without
// a lock. Entries are never removed.
#ifndef TF_RDMABATCH_CC_ENGINE_STORE_TABLES_H_
#define TF_RDMABATCH_CC_ENGINE_STORE_TABLES_H_

#include <array>
#include <atomic>
#include <cstdint>

namespace rdmabatch {

inline constexpr uint32_t kMaxIds = 1u << 20;

// A map of kMaxIds entries, which come into being a chunk at a time.
template <typename Entry, uint32_t ChunkEntries>
class ChunkedArray {
 public:
  ChunkedArray() = default;
  ~ChunkedArray() {
    for (auto& chunk : chunks_) delete chunk.load(std::memory_order_relaxed);
  }
  ChunkedArray(const ChunkedArray&) = delete;
  ChunkedArray& operator=(const ChunkedArray&) = delete;

  // Null when nothing was put near `index` yet, or when it is out of range.
  Entry* Find(uint32_t index) const {
    if (index >= kChunks * ChunkEntries) return nullptr;
    Chunk* chunk = chunks_[index / ChunkEntries].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : &(*chunk)[index % ChunkEntries];
  }
  // One thread at a time; `index` is in range.
  Entry& Make(uint32_t index) {
    auto& chunk = chunks_[index / ChunkEntries];
    if (chunk.load(std::memory_order_relaxed) == nullptr) {
      chunk.store(new Chunk(), std::memory_order_release);
    }
    return *Find(index);
  }

 private:
  static constexpr uint32_t kChunks = 256;
  using Chunk = std::array<Entry, ChunkEntries>;
  std::array<std::atomic<Chunk*>, kChunks> chunks_{};
};

class IdSet {
 public:
  bool Has(uint32_t id) const {
    const auto* word = words_.Find(id / 64);
    return word != nullptr && (word->load(std::memory_order_acquire) >> (id % 64) & 1) != 0;
  }
  void Add(uint32_t id) {
    words_.Make(id / 64).fetch_or(uint64_t{1} << (id % 64), std::memory_order_release);
  }

 private:
  ChunkedArray<std::atomic<uint64_t>, kMaxIds / 64 / 256> words_;
};

template <typename T>
class IdTable {
 public:
  T* Find(uint32_t id) const {
    const auto* entry = entries_.Find(id);
    return entry == nullptr ? nullptr : entry->load(std::memory_order_acquire);
  }
  void Put(uint32_t id, T* value) { entries_.Make(id).store(value, std::memory_order_release); }

 private:
  ChunkedArray<std::atomic<T*>, kMaxIds / 256> entries_;
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_STORE_TABLES_H_
