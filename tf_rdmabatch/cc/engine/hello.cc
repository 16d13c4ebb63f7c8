#include <algorithm>
#include <string_view>

#include "tf_rdmabatch/cc/engine/bytes.h"
#include "tf_rdmabatch/cc/engine/handshake.h"

namespace rdmabatch {
namespace {

constexpr size_t kMaxText = 128;
constexpr uint32_t kMaxLanes = 16;

// Texts of a peer end in logs and messages.
std::string Printable(std::string_view text) {
  std::string copy(text);
  std::replace_if(
      copy.begin(), copy.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return copy;
}

}  // namespace

std::string Hello::Encode() const {
  ByteWriter writer;
  writer.String(name.substr(0, kMaxText), kMaxText);
  writer.String(host.substr(0, kMaxText), kMaxText);
  writer.String(boot_id.substr(0, kMaxText), kMaxText);
  writer.U32(pid);
  writer.U32(geometry.slots);
  writer.U32(geometry.slot_bytes);
  writer.U32(lanes);
  writer.U8(static_cast<uint8_t>(confirm));
  return writer.Take();
}

Result<Hello> Hello::Decode(const std::string& bytes) {
  ByteReader reader(bytes);
  Hello hello;
  hello.name = Printable(reader.String(kMaxText));
  hello.host = Printable(reader.String(kMaxText));
  hello.boot_id = Printable(reader.String(kMaxText));
  hello.pid = reader.U32();
  hello.geometry.slots = reader.U32();
  hello.geometry.slot_bytes = reader.U32();
  hello.lanes = reader.U32();
  const uint8_t confirm = reader.U8();
  hello.confirm = static_cast<Confirm>(confirm);
  if (!reader.done() || !ValidGeometry(hello.geometry) || hello.lanes < 1 ||
      hello.lanes > kMaxLanes || confirm > static_cast<uint8_t>(Confirm::kEach)) {
    return Status(StatusCode::kDataLoss, "the peer's greeting does not parse");
  }
  return hello;
}

}  // namespace rdmabatch
