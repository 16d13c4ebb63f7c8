// ByteWriter and ByteReader: control messages between engines, little endian on every host.
//
// Neither throws on bad input: failure is sticky and asked for once, at the end (`ok()`, `done()`),
// so that a message is a plain list of fields on both sides. Not for the message path. Not
// thread-safe.
#ifndef TF_RDMABATCH_CC_ENGINE_BYTES_H_
#define TF_RDMABATCH_CC_ENGINE_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace rdmabatch {

class ByteWriter {
 public:
  void U8(uint8_t value) { Integer(value); }
  void U16(uint16_t value) { Integer(value); }
  void U32(uint32_t value) { Integer(value); }
  void U64(uint64_t value) { Integer(value); }

  // Length (u32), then the bytes. More than `max_bytes` writes nothing and fails: what a writer
  // sends, the reader with the same limit accepts.
  void String(std::string_view value, size_t max_bytes) {
    if (value.size() > max_bytes || value.size() > std::numeric_limits<uint32_t>::max()) {
      ok_ = false;
      return;
    }
    U32(static_cast<uint32_t>(value.size()));
    Raw(value);
  }

  // The bytes alone; the reader knows how many.
  void Raw(std::string_view bytes) { bytes_.append(bytes); }

  bool ok() const { return ok_; }
  const std::string& bytes() const { return bytes_; }
  std::string Take() { return std::exchange(bytes_, {}); }

 private:
  template <typename T>
  void Integer(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
    }
  }

  std::string bytes_;
  bool ok_ = true;
};

// Reads what a ByteWriter wrote, from bytes that it does not own and does not trust. Never reads
// past the end: a field that is not there fails the reader, and from then on every field is 0 or
// empty.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  uint8_t U8() { return Integer<uint8_t>(); }
  uint16_t U16() { return Integer<uint16_t>(); }
  uint32_t U32() { return Integer<uint32_t>(); }
  uint64_t U64() { return Integer<uint64_t>(); }

  // A view into the bytes read; fails when it is longer than `max_bytes` or than what is left.
  std::string_view String(size_t max_bytes) {
    uint32_t size = U32();
    if (size > max_bytes) Fail();
    return Raw(size);
  }

  // Exactly `size` bytes, a view as well.
  std::string_view Raw(size_t size) {
    if (!ok_ || size > bytes_.size()) {
      Fail();
      return {};
    }
    std::string_view raw = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return raw;
  }

  // For a field that was read but has no meaning here.
  void Fail() {
    ok_ = false;
    bytes_ = {};
  }

  // Every field so far was there.
  bool ok() const { return ok_; }
  // The same, and nothing is left over: what a complete message must say at its end.
  bool done() const { return ok_ && bytes_.empty(); }
  size_t remaining() const { return bytes_.size(); }

 private:
  template <typename T>
  T Integer() {
    std::string_view raw = Raw(sizeof(T));
    uint64_t value = 0;
    for (size_t i = 0; i < raw.size(); ++i) {
      value |= uint64_t{static_cast<uint8_t>(raw[i])} << (8 * i);
    }
    return static_cast<T>(value);
  }

  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_BYTES_H_
