#include "tf_rdmabatch/cc/engine/hello.h"

#include <algorithm>
#include <string_view>

#include "tf_rdmabatch/cc/engine/bytes.h"

namespace rdmabatch {
namespace {

constexpr size_t kMaxText = 128;
constexpr size_t kMaxReason = 512;
constexpr size_t kMaxEntries = 16;
constexpr uint32_t kMaxLanes = 16;

// Texts of a peer end in logs and messages.
std::string Printable(std::string_view text) {
  std::string copy(text);
  std::replace_if(
      copy.begin(), copy.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return copy;
}

template <typename Entry>
void WriteList(ByteWriter* writer, const std::vector<Entry>& entries) {
  const size_t count = std::min(entries.size(), kMaxEntries);
  writer->U16(static_cast<uint16_t>(count));
  for (size_t i = 0; i < count; ++i) {
    const auto& [first, second] = entries[i];
    writer->String(first.substr(0, kMaxText), kMaxText);
    writer->String(second.substr(0, kMaxReason), kMaxReason);
  }
}

template <typename Entry>
std::vector<Entry> ReadList(ByteReader* reader) {
  std::vector<Entry> entries;
  const uint16_t count = reader->U16();
  if (count > kMaxEntries) reader->Fail();
  for (uint16_t i = 0; i < count && reader->ok(); ++i) {
    std::string first = Printable(reader->String(kMaxText));
    entries.push_back({std::move(first), Printable(reader->String(kMaxReason))});
  }
  return entries;
}

// "2.21.0" is "2.21".
std::string Minor(const std::string& version) {
  const size_t dot = version.find('.');
  return version.substr(0, dot == std::string::npos ? dot : version.find('.', dot + 1));
}

std::string Who(const Hello& hello) {
  return (hello.name.empty() ? "a task" : hello.name) + " on host " + hello.host_name;
}

Status CheckSoftware(const Hello& mine, const Hello& peer) {
  for (const SoftwareVersion& own : mine.software) {
    for (const SoftwareVersion& other : peer.software) {
      if (own.name != other.name || Minor(own.version) == Minor(other.version)) continue;
      return {StatusCode::kFailedPrecondition, Who(mine) + " has " + own.name + " " + own.version +
                                                   ", and " + Who(peer) + " has " + other.version +
                                                   ": install the same version on both"};
    }
  }
  return Status::Ok();
}

}  // namespace

std::string Hello::Encode() const {
  ByteWriter writer;
  writer.String(name.substr(0, kMaxText), kMaxText);
  writer.String(host_name.substr(0, kMaxText), kMaxText);
  WriteList(&writer, software);
  writer.String(boot_id.substr(0, kMaxText), kMaxText);
  writer.String(network.substr(0, kMaxText), kMaxText);
  writer.U32(pid);
  writer.U32(geometry.slots);
  writer.U32(geometry.slot_bytes);
  writer.U32(lanes);
  writer.U8(static_cast<uint8_t>(confirm));
  WriteList(&writer, transports);
  return writer.Take();
}

Result<Hello> Hello::Decode(const std::string& bytes, const Hello& mine) {
  ByteReader reader(bytes);
  Hello hello;
  hello.name = Printable(reader.String(kMaxText));
  hello.host_name = Printable(reader.String(kMaxText));
  hello.software = ReadList<SoftwareVersion>(&reader);
  if (reader.ok()) RDMABATCH_RETURN_IF_ERROR(CheckSoftware(mine, hello));
  hello.boot_id = Printable(reader.String(kMaxText));
  hello.network = Printable(reader.String(kMaxText));
  hello.pid = reader.U32();
  hello.geometry.slots = reader.U32();
  hello.geometry.slot_bytes = reader.U32();
  hello.lanes = reader.U32();
  const uint8_t confirm = reader.U8();
  hello.confirm = static_cast<Confirm>(confirm);
  hello.transports = ReadList<TransportState>(&reader);
  if (!reader.done() || !ValidGeometry(hello.geometry) || hello.lanes < 1 ||
      hello.lanes > kMaxLanes || confirm > static_cast<uint8_t>(Confirm::kEach)) {
    return Status(StatusCode::kDataLoss, "the peer's greeting does not parse");
  }
  return hello;
}

}  // namespace rdmabatch
