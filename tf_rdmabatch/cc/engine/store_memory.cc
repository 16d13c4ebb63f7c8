#include "tf_rdmabatch/cc/engine/store_memory.h"

#include <algorithm>

#include "tf_rdmabatch/cc/base/bits.h"

namespace rdmabatch {
namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kPage = 4096;
// Chunks double up to this, so that a server of a few small parameters pins little.
constexpr uint64_t kMaxChunkBytes = 16 << 20;

}  // namespace

Result<PublishedPlace> PublishedMemory::Allocate(Engine* engine, uint32_t blocks, uint64_t bytes) {
  const uint64_t words = uint64_t{blocks} * sizeof(uint64_t);
  const uint64_t shared_bytes = AlignUp(words, kLine) + AlignUp(bytes, kLine);
  if (shared_bytes > next_chunk_bytes_ / 4) {
    auto region = engine->Allocate(AlignUp(words, kPage) + bytes, Access::kRemoteRead);
    if (!region.ok()) return region.status();
    return PublishedPlace{std::move(*region), 0, AlignUp(words, kPage)};
  }
  if (chunk_ == nullptr || chunk_->size() - used_ < shared_bytes) {
    auto region = engine->Allocate(next_chunk_bytes_, Access::kRemoteRead);
    if (!region.ok()) return region.status();
    chunk_ = std::move(*region);
    used_ = 0;
    next_chunk_bytes_ = std::min(2 * next_chunk_bytes_, kMaxChunkBytes);
  }
  PublishedPlace place{chunk_, used_, used_ + AlignUp(words, kLine)};
  used_ += shared_bytes;
  return place;
}

}  // namespace rdmabatch
