// ByteReader: the input's first half says which fields are read from the second. What was read must
// be what the bytes say, and a reader that is done must have been given exactly what a ByteWriter
// writes for the same fields.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tf_rdmabatch/cc/engine/bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  std::string_view fields = input.substr(0, size / 2);
  // An exact copy on the heap, so that a read past its end is seen.
  std::string message(input.substr(size / 2));
  message.shrink_to_fit();
  rdmabatch::ByteReader reader(message);
  rdmabatch::ByteWriter writer;
  for (char field : fields) {
    size_t limit = static_cast<uint8_t>(field) >> 3;
    size_t before = reader.remaining();
    switch (field & 7) {
      case 0:
        writer.U8(reader.U8());
        break;
      case 1:
        writer.U16(reader.U16());
        break;
      case 2:
        writer.U32(reader.U32());
        break;
      case 3:
        writer.U64(reader.U64());
        break;
      case 4:
        writer.Raw(reader.Raw(limit));
        break;
      case 5:
        writer.String(reader.String(limit), limit);
        break;
      case 6:
        writer.String(reader.String(SIZE_MAX), SIZE_MAX);
        break;
      default:
        break;
    }
    if (reader.remaining() > before) __builtin_trap();
    if (!reader.ok()) {
      if (reader.remaining() != 0 || reader.U64() != 0 || !reader.Raw(0).empty() || reader.done()) {
        __builtin_trap();
      }
      return 0;
    }
  }
  if (!writer.ok()) __builtin_trap();
  size_t read = message.size() - reader.remaining();
  if (writer.bytes() != std::string_view(message).substr(0, read)) __builtin_trap();
  if (reader.done() != (read == message.size())) __builtin_trap();
  return 0;
}
