// What two verbs transports tell each other about a connection: offers, memory descriptors and the
// private data of a connection request. Little endian, fixed sizes, versioned.
#ifndef TF_RDMABATCH_CC_TRANSPORT_VERBS_WIRE_H_
#define TF_RDMABATCH_CC_TRANSPORT_VERBS_WIRE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tf_rdmabatch/cc/base/status.h"

namespace rdmabatch {
namespace verbs {

// How an announcement travels. Both ends must agree, so a RoCE device cannot talk to an iWARP one.
enum class Fabric : uint8_t {
  kInfiniBand = 1,  // InfiniBand and RoCE: WRITE with immediate data
  kIwarp = 2,       // WRITE, then a SEND of the immediate as 4 bytes in network order
};

using Cookie = std::array<uint8_t, 16>;

// Where a listener waits, and the cookie that it wants to see.
// bytes: 'R' 'V' version fabric | family(4 or 6) 0 | port u16 | address[16] | cookie[16]
struct Offer {
  static constexpr size_t kBytes = 40;
  Fabric fabric = Fabric::kInfiniBand;
  uint8_t family = 4;
  uint16_t port = 0;
  std::array<uint8_t, 16> address{};  // network order; IPv4 in the first 4 bytes, the rest 0
  Cookie cookie{};

  std::string Encode() const;
  static Result<Offer> Parse(std::string_view bytes);
};

// Memory that a peer may reach.
// bytes: 'R' 'M' version 0 | rkey u32 | address u64 | length u64
struct Descriptor {
  static constexpr size_t kBytes = 24;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint32_t key = 0;

  std::string Encode() const;
  static Result<Descriptor> Parse(std::string_view bytes);
};

// Private data of a connection request.
// bytes: 'R' 'C' version 0 | cookie[16]
struct ConnectRequest {
  static constexpr size_t kBytes = 20;
  Cookie cookie{};

  std::string Encode() const;
  // Some devices pad private data, so more bytes than kBytes are accepted.
  static Result<ConnectRequest> Parse(std::string_view bytes);
};

}  // namespace verbs
}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_TRANSPORT_VERBS_WIRE_H_
