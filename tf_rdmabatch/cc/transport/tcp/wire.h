// What the two ends of a tcp connection say to each other: first two records, then frames. Little
// endian, fixed sizes, versioned. docs/protocol.md describes it.
#ifndef TF_RDMABATCH_CC_TRANSPORT_TCP_WIRE_H_
#define TF_RDMABATCH_CC_TRANSPORT_TCP_WIRE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace rdmabatch::tcp {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "records are sent as they are in memory");

constexpr uint32_t kVersion = 1;
constexpr uint32_t kMaxQueueDepth = 1u << 20;  // bounds EndpointOptions::send_queue_depth
constexpr uint32_t kMaxRegions = 1024;         // regions that an endpoint exports

using Secret = std::array<uint8_t, 16>;
using TlsKey = std::array<uint8_t, 32>;

// What Acceptor::offer() carries: where it listens, and what each side proves with.
struct Offer {
  static constexpr uint32_t kMagic = 0x6f544252;
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t family = 4;  // or 6
  uint32_t port = 0;
  std::array<uint8_t, 16> address{};  // network order; IPv4 in the first 4 bytes, the rest 0
  Secret connect_secret{};
  Secret accept_secret{};
  uint32_t tls = 0;  // 1: TLS follows the greetings, with a key that is made of tls_key and them
  TlsKey tls_key{};  // random; never sent but in the offer

  bool Valid() const;
};

// The first bytes of each side, the connecting one first: it was given the offer, the other made
// it. Never encrypted.
struct Greeting {
  static constexpr uint32_t kMagic = 0x67544252;
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  Secret secret{};
  uint32_t queue_depth = 0;  // reads that the sender may have outstanding
  uint32_t reserved = 0;

  bool Valid() const { return queue_depth >= 1 && queue_depth <= kMaxQueueDepth && reserved == 0; }
};

// What Export returns.
struct Region {
  static constexpr uint32_t kMagic = 0x72544252;
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t id = 0;
  uint32_t reserved = 0;
  uint64_t bytes = 0;

  bool Valid() const { return bytes != 0 && reserved == 0; }
};

enum class FrameType : uint32_t {
  kWrite = 1,     // payload goes to (region, offset) of the receiver
  kWriteImm = 2,  // the same, and then `immediate` is perceived
  kRead = 3,      // asks for `length` bytes of (region, offset) of the receiver; no payload
  kReply = 4,  // payload: the next `length` bytes of the oldest read that is not answered in full
  kAck = 5,    // `immediate` more immediates were perceived; 0 keeps the connection alive
};

struct Frame {
  FrameType type = FrameType::kAck;
  uint32_t length = 0;
  uint32_t region = 0;
  uint32_t immediate = 0;
  uint64_t offset = 0;

  bool HasPayload() const { return type != FrameType::kRead && type != FrameType::kAck; }
};
static_assert(sizeof(Frame) == 24);

template <typename T>
std::string Pack(const T& record) {
  static_assert(std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T>);
  return std::string(reinterpret_cast<const char*>(&record), sizeof(T));
}

// False unless `bytes` are a record of this kind and version with values in range.
template <typename T>
bool Unpack(std::string_view bytes, T* record) {
  if (bytes.size() != sizeof(T)) return false;
  std::memcpy(record, bytes.data(), sizeof(T));
  return record->magic == T::kMagic && record->version == kVersion && record->Valid();
}

// Whether a frame says nothing that its type has no room for. Ranges are the receiver's to check.
bool Plausible(const Frame& frame);

}  // namespace rdmabatch::tcp

#endif  // TF_RDMABATCH_CC_TRANSPORT_TCP_WIRE_H_
