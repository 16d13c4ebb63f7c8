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

Result<PublishedPlace> PublishedMemory::Allocate(Engine* engine, const ParameterInfo& info) {
  const uint64_t versions = info.spec.versions;
  const uint64_t alignment = info.bytes >= kMinViewBytes ? kPage : kLine;
  PublishedLayout layout;
  layout.versions = info.spec.versions;
  layout.words_stride = AlignUp(uint64_t{info.blocks} * sizeof(uint64_t), kLine);
  layout.data_stride = AlignUp(info.bytes, alignment);
  layout.data_offset = AlignUp(versions * layout.words_stride, alignment);
  const uint64_t all = layout.data_offset + versions * layout.data_stride;
  if (all > next_chunk_bytes_ / 4) {
    auto region = engine->Allocate(all, Access::kRemoteRead);
    if (!region.ok()) return region.status();
    return PublishedPlace{std::move(*region), layout};
  }
  used_ = AlignUp(used_, alignment);
  if (chunk_ == nullptr || used_ + all > chunk_->size()) {
    auto region = engine->Allocate(next_chunk_bytes_, Access::kRemoteRead);
    if (!region.ok()) return region.status();
    chunk_ = std::move(*region);
    used_ = 0;
    next_chunk_bytes_ = std::min(2 * next_chunk_bytes_, kMaxChunkBytes);
  }
  layout.words_offset += used_;
  layout.data_offset += used_;
  used_ += all;
  return PublishedPlace{chunk_, layout};
}

}  // namespace rdmabatch
