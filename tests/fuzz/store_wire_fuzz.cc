// What the parameter store decodes from a peer: the first byte picks the message. What decodes must
// encode to the same again, or be within the bounds that its users rely on.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "tf_rdmabatch/cc/engine/store_wire.h"

namespace {

void Require(bool condition) {
  if (!condition) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rdmabatch;
  if (size == 0) return 0;
  // An exact copy on the heap, so that a read past its end is seen.
  const size_t bytes = size - 1;
  std::unique_ptr<uint8_t[]> copy(new uint8_t[bytes]);
  std::memcpy(copy.get(), data + 1, bytes);
  const Span<const uint8_t> payload(copy.get(), bytes);
  const auto same = [&](const std::string& encoded) {
    return encoded.size() == bytes && std::memcmp(encoded.data(), copy.get(), bytes) == 0;
  };
  switch (data[0] % 5) {
    case 0:
      if (const auto push = DecodePush(payload)) Require(push->bytes + sizeof(PushHeader) == bytes);
      break;
    case 1:
      if (DecodePublished(payload)) Require(bytes == sizeof(PublishedNotice));
      break;
    case 2:
      if (const auto open = DecodeOpen(payload)) {
        Require(same(Encode(*open)) && !open->name.empty() && open->cookie != kNoCookie);
      }
      break;
    case 3:
      if (const auto opened = DecodeOpened(payload)) {
        const ParameterInfo& info = opened->info;
        Require(same(Encode(*opened)));
        Require(info.blocks > 0 && info.bytes <= opened->region_bytes &&
                opened->layout.versions == info.spec.versions);
        for (uint64_t version = 0; version < info.spec.versions; ++version) {
          Require(opened->layout.DataOf(version) <= opened->region_bytes - info.bytes &&
                  opened->layout.WordsOf(version) + uint64_t{info.blocks} * 8 <=
                      opened->region_bytes);
        }
        const uint32_t last = info.blocks - 1;
        Require(uint64_t{last} * info.spec.block_bytes + BlockBytes(info, last) == info.bytes);
      }
      break;
    default:
      if (const auto refused = DecodeRefused(payload)) {
        Require(!refused->status.ok() && Encode(*refused).size() == bytes);
      }
  }
  return 0;
}
