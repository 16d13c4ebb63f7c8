#include "tf_rdmabatch/cc/engine/store_wire.h"

#include <cstring>
#include <string_view>

#include "tf_rdmabatch/cc/base/bits.h"
#include "tf_rdmabatch/cc/engine/bytes.h"

namespace rdmabatch {
namespace {

constexpr size_t kMaxRegionDescriptor = 8192;
constexpr size_t kMaxRefusalText = 1024;

Status Invalid(const std::string& what) { return {StatusCode::kInvalidArgument, what}; }

std::string_view View(Span<const uint8_t> payload) {
  return {reinterpret_cast<const char*>(payload.data()), payload.size()};
}

// Text from a peer ends up in messages and logs.
std::string Printable(std::string_view text) {
  std::string printable(text);
  for (char& c : printable) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = '?';
  }
  return printable;
}

// Whether what each version has of `bytes` lies in the region.
bool Within(uint64_t offset, uint64_t stride, uint64_t bytes, const OpenReply& reply) {
  const uint64_t end = reply.region_bytes;
  if (offset > end || bytes > end - offset) return false;
  return reply.layout.versions == 1 || stride <= end - offset - bytes;
}

}  // namespace

std::optional<PushHeader> DecodePush(Span<const uint8_t> payload) {
  PushHeader header;
  if (payload.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, payload.data(), sizeof(header));
  if (header.bytes != payload.size() - sizeof(header)) return std::nullopt;
  return header;
}

std::optional<PublishedNotice> DecodePublished(Span<const uint8_t> payload) {
  PublishedNotice notice;
  if (payload.size() != sizeof(notice)) return std::nullopt;
  std::memcpy(&notice, payload.data(), sizeof(notice));
  return notice;
}

std::string Encode(const OpenRequest& request) {
  ByteWriter writer;
  writer.U32(request.cookie);
  writer.String(request.name, kMaxParameterName);
  return writer.Take();
}

std::optional<OpenRequest> DecodeOpen(Span<const uint8_t> payload) {
  ByteReader reader(View(payload));
  OpenRequest request;
  request.cookie = reader.U32();
  request.name = reader.String(kMaxParameterName);
  if (!reader.done() || request.name.empty() || request.cookie == kNoCookie) return std::nullopt;
  return request;
}

std::string Encode(const OpenReply& reply) {
  const ParameterSpec& spec = reply.info.spec;
  ByteWriter writer;
  writer.U32(reply.cookie);
  writer.U32(reply.id);
  writer.U8(static_cast<uint8_t>(spec.dtype));
  writer.U8(static_cast<uint8_t>(spec.consistency));
  writer.U8(static_cast<uint8_t>(spec.versions));
  writer.U32(spec.contributors);
  writer.U32(spec.block_bytes);
  writer.U64(reply.info.version);
  writer.U64(reply.info.step);
  writer.U8(static_cast<uint8_t>(spec.shape.size()));
  for (uint64_t dimension : spec.shape) writer.U64(dimension);
  writer.String(reply.region, kMaxRegionDescriptor);
  writer.U64(reply.region_bytes);
  writer.U64(reply.layout.words_offset);
  writer.U64(reply.layout.words_stride);
  writer.U64(reply.layout.data_offset);
  writer.U64(reply.layout.data_stride);
  return writer.Take();
}

std::optional<OpenReply> DecodeOpened(Span<const uint8_t> payload) {
  ByteReader reader(View(payload));
  OpenReply reply;
  reply.cookie = reader.U32();
  reply.id = reader.U32();
  ParameterSpec& spec = reply.info.spec;
  const auto dtype = DTypeFromNumber(reader.U8());
  const uint8_t consistency = reader.U8();
  if (!dtype || consistency > static_cast<uint8_t>(Consistency::kAsp)) return std::nullopt;
  spec.dtype = *dtype;
  spec.consistency = static_cast<Consistency>(consistency);
  spec.versions = reader.U8();
  spec.contributors = reader.U32();
  spec.block_bytes = reader.U32();
  reply.info.version = reader.U64();
  reply.info.step = reader.U64();
  const uint8_t rank = reader.U8();
  if (rank > kMaxRank) return std::nullopt;
  for (uint8_t i = 0; i < rank; ++i) spec.shape.push_back(reader.U64());
  reply.region = reader.String(kMaxRegionDescriptor);
  reply.region_bytes = reader.U64();
  PublishedLayout& layout = reply.layout;
  layout.versions = spec.versions;
  layout.words_offset = reader.U64();
  layout.words_stride = reader.U64();
  layout.data_offset = reader.U64();
  layout.data_stride = reader.U64();
  if (!reader.done() || !Measure(&reply.info).ok()) return std::nullopt;
  const uint64_t words = uint64_t{reply.info.blocks} * sizeof(uint64_t);
  if (layout.words_offset % sizeof(uint64_t) != 0 || layout.words_stride % sizeof(uint64_t) != 0 ||
      !Within(layout.words_offset, layout.words_stride, words, reply) ||
      !Within(layout.data_offset, layout.data_stride, reply.info.bytes, reply)) {
    return std::nullopt;
  }
  return reply;
}

std::string Encode(const Refusal& refusal) {
  ByteWriter writer;
  writer.U32(refusal.cookie);
  writer.U8(static_cast<uint8_t>(refusal.status.code()));
  const std::string_view text = refusal.status.message();
  writer.String(text.substr(0, kMaxRefusalText), kMaxRefusalText);
  return writer.Take();
}

std::optional<Refusal> DecodeRefused(Span<const uint8_t> payload) {
  ByteReader reader(View(payload));
  Refusal refusal;
  refusal.cookie = reader.U32();
  const uint8_t code = reader.U8();
  const std::string_view text = reader.String(kMaxRefusalText);
  if (!reader.done() || code == 0 || code > static_cast<uint8_t>(StatusCode::kInternal)) {
    return std::nullopt;
  }
  refusal.status = {static_cast<StatusCode>(code), Printable(text)};
  return refusal;
}

Status Measure(ParameterInfo* info) {
  const ParameterSpec& spec = info->spec;
  if (spec.shape.size() > kMaxRank) return Invalid("a parameter has at most 32 dimensions");
  if (spec.contributors < 1 || spec.contributors > 65536) {
    return Invalid("a parameter has 1 to 65536 contributors");
  }
  if (spec.versions < 1 || spec.versions > 2) return Invalid("a parameter keeps 1 or 2 versions");
  if (spec.versions == 2 && spec.consistency == Consistency::kAsp) {
    return Invalid("an asynchronous parameter keeps 1 version");
  }
  if (spec.block_bytes == 0 || spec.block_bytes % kBlockAlignment != 0) {
    return Invalid("a block has a multiple of 64 bytes");
  }
  bool empty = false;
  for (uint64_t dimension : spec.shape) empty |= dimension == 0;
  uint64_t bytes = empty ? 0 : DTypeSize(spec.dtype);
  for (uint64_t dimension : spec.shape) {
    if (empty) break;
    if (dimension > kMaxParameterBytes / bytes) return Invalid("the parameter is too large");
    bytes *= dimension;
  }
  // Even an empty parameter has a block, so that its rounds end like all others.
  const uint64_t blocks = bytes == 0 ? 1 : (bytes - 1) / spec.block_bytes + 1;
  if (blocks > ~uint32_t{0} - 1) return Invalid("the parameter has too many blocks");
  info->bytes = bytes;
  info->blocks = static_cast<uint32_t>(blocks);
  return Status::Ok();
}

}  // namespace rdmabatch
