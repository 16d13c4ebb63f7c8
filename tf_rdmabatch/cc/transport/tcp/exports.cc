#include "tf_rdmabatch/cc/transport/tcp/exports.h"

#include <sys/random.h>

#include <string>
#include <utility>

namespace rdmabatch::tcp {
namespace {

bool Allows(Access access, OpCode op) {
  const bool read = access == Access::kRemoteRead || access == Access::kRemoteReadWrite;
  const bool write = access == Access::kRemoteWrite || access == Access::kRemoteReadWrite;
  return op == OpCode::kRead ? read : write;
}

}  // namespace

Result<Region> Exports::Add(std::shared_ptr<Registration> registration) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint32_t index = count_.load(std::memory_order_relaxed);
  if (index == kMaxRegions) {
    return Status(StatusCode::kResourceExhausted,
                  "an endpoint exports at most " + std::to_string(kMaxRegions) + " regions");
  }
  if (index == 0) {
    if (getrandom(&tag_, sizeof(tag_), 0) != sizeof(tag_)) {
      return Status(StatusCode::kInternal, "getrandom failed");
    }
    tag_ <<= kIndexBits;
  }
  Region region;
  region.id = tag_ | index;
  region.bytes = registration->bytes;
  entries_[index] = std::move(registration);
  count_.store(index + 1, std::memory_order_release);
  return region;
}

const Registration* Exports::Find(uint32_t id, uint64_t offset, uint32_t length, OpCode op) const {
  const uint32_t count = count_.load(std::memory_order_acquire);
  if (count == 0) return nullptr;
  const uint32_t index = id - tag_;
  if (index >= count) return nullptr;
  const Registration* region = entries_[index].get();
  const bool fits = offset <= region->bytes && length <= region->bytes - offset;
  return fits && Allows(region->access, op) && region->alive.load(std::memory_order_seq_cst)
             ? region
             : nullptr;
}

}  // namespace rdmabatch::tcp
