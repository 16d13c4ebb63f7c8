// What the parameter store's two halves send each other. docs/protocol.md explains it.
//
// Decoding takes bytes from a peer: every function says false (or nothing) to what does not parse,
// and checks what can be checked without the parameter.
#ifndef TF_RDMABATCH_CC_ENGINE_STORE_WIRE_H_
#define TF_RDMABATCH_CC_ENGINE_STORE_WIRE_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "tf_rdmabatch/cc/base/span.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/engine/store.h"

namespace rdmabatch {

inline constexpr size_t kMaxParameterName = 256;
inline constexpr size_t kMaxRank = 32;
inline constexpr uint64_t kMaxParameterBytes = uint64_t{1} << 44;
inline constexpr uint32_t kBlockAlignment = 64;

// kPush: this header, then the block, or several that follow each other; how many, `bytes` says.
// Its size puts a lone block at a cache line of its slot.
struct PushHeader {
  uint32_t parameter;
  uint32_t block;  // the first
  uint64_t step;
  uint32_t contributor;
  uint32_t bytes;  // that follow
  uint64_t flags;
};
static_assert(sizeof(PushHeader) == 32);

// A contribution to all blocks that adds nothing: `block` and `bytes` are 0.
inline constexpr uint64_t kPushNothing = 1;

// The header of a push whose length is what it says.
std::optional<PushHeader> DecodePush(Span<const uint8_t> payload);

// kPublished. `cookie` is the worker's name for its open parameter.
struct PublishedNotice {
  uint32_t cookie;
  uint32_t first;  // block
  uint32_t count;
  uint32_t reserved;
  uint64_t version;
};
static_assert(sizeof(PublishedNotice) == 24);

std::optional<PublishedNotice> DecodePublished(Span<const uint8_t> payload);

// kOpen
struct OpenRequest {
  uint32_t cookie = 0;
  std::string name;
};

std::string Encode(const OpenRequest& request);
std::optional<OpenRequest> DecodeOpen(Span<const uint8_t> payload);

// A parameter with at least so many bytes begins at a page of its own, so that it can be mapped.
inline constexpr uint64_t kMinViewBytes = 64 << 10;

// Where in a region the published versions lie, in turn: a version word a block, twice the version,
// odd while it is being written; and the data, contiguous.
struct PublishedLayout {
  uint32_t versions = 1;
  uint64_t words_offset = 0;
  uint64_t words_stride = 0;
  uint64_t data_offset = 0;
  uint64_t data_stride = 0;

  uint64_t WordsOf(uint64_t version) const {
    return words_offset + version % versions * words_stride;
  }
  uint64_t DataOf(uint64_t version) const { return data_offset + version % versions * data_stride; }
};

// kOpened
struct OpenReply {
  uint32_t cookie = 0;
  uint32_t id = 0;
  ParameterInfo info;  // without the name, which the worker knows
  std::string region;  // descriptor, for Connection::Import
  uint64_t region_bytes = 0;
  PublishedLayout layout;  // its number of versions is that of the info
};

std::string Encode(const OpenReply& reply);
// Sizes and offsets agree with each other and lie within region_bytes.
std::optional<OpenReply> DecodeOpened(Span<const uint8_t> payload);

// kRefused. A refusal that belongs to no open parameter has kNoCookie.
inline constexpr uint32_t kNoCookie = ~uint32_t{0};
struct Refusal {
  uint32_t cookie = kNoCookie;
  Status status;
};

std::string Encode(const Refusal& refusal);
std::optional<Refusal> DecodeRefused(Span<const uint8_t> payload);

// Fills in bytes and blocks from the spec's shape and block_bytes. kInvalidArgument says what is
// wrong with the spec.
Status Measure(ParameterInfo* info);

inline uint32_t BlockBytes(const ParameterInfo& info, uint32_t block) {
  const uint64_t begin = uint64_t{block} * info.spec.block_bytes;
  const uint64_t rest = info.bytes - begin;
  return rest < info.spec.block_bytes ? static_cast<uint32_t>(rest) : info.spec.block_bytes;
}

// Of `count` blocks, from `block` on.
inline uint64_t BlocksBytes(const ParameterInfo& info, uint32_t block, uint32_t count) {
  const uint64_t most = uint64_t{count} * info.spec.block_bytes;
  return std::min(most, info.bytes - uint64_t{block} * info.spec.block_bytes);
}

// How many blocks, from `block` on, have so many bytes; 0 where that are no whole ones. An empty
// parameter's only block has none.
inline uint32_t BlocksIn(const ParameterInfo& info, uint32_t block, uint32_t bytes) {
  const uint32_t count = bytes == 0 ? 1 : (bytes - 1) / info.spec.block_bytes + 1;
  const bool whole = count <= info.blocks - block && BlocksBytes(info, block, count) == bytes;
  return whole ? count : 0;
}

inline Span<const uint8_t> BytesOf(const std::string& bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_STORE_WIRE_H_
