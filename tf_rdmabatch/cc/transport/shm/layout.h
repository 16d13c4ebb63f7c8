// What the two processes of a shared-memory connection share: the control page, and the messages
// that set it up.
//
// Both sides run on one host, so everything is in native byte order. Both may belong to different
// builds: every message starts with a magic number and a version.
#ifndef TF_RDMABATCH_CC_TRANSPORT_SHM_LAYOUT_H_
#define TF_RDMABATCH_CC_TRANSPORT_SHM_LAYOUT_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "tf_rdmabatch/cc/base/bits.h"

namespace rdmabatch::shm {

constexpr uint32_t kVersion = 1;
constexpr uint32_t kMaxReceives = 1u << 16;    // bounds EndpointOptions::max_receives
constexpr uint32_t kMaxQueueDepth = 1u << 20;  // bounds EndpointOptions::send_queue_depth
constexpr uint32_t kMaxRegions = 1024;         // regions that an endpoint exports, and imports
constexpr size_t kLine = 128;  // a cache line and the one that is prefetched with it

// Each endpoint owns one control page, which its peer maps too. `Owner` is the endpoint that
// created it. Every field has one writer and lines of its own. The peer can write any of them at
// any time, so the owner keeps its own copy of what it wrote, and checks what it reads.
//
// Two pairs of fields are read crosswise, sequentially consistent, so that no wake-up is lost: the
// peer stores `head` and then loads `sleeping`, the owner stores `sleeping` and then loads `head`;
// likewise `tail` and `want_tail`.
struct ControlPage {
  // Peer: one past the last immediate in the ring. Wraps at 2^32.
  alignas(kLine) std::atomic<uint32_t> head{0};
  // Owner: one past the last immediate perceived.
  alignas(kLine) std::atomic<uint32_t> tail{0};
  // Owner: 0 while its progress thread is awake, else the number of this sleep. The peer wakes each
  // sleep once.
  alignas(kLine) std::atomic<uint32_t> sleeping{0};
  // Peer: 0, or a number that asks the owner to wake the peer when `tail` has advanced, once for
  // each number.
  alignas(kLine) std::atomic<uint32_t> want_tail{0};
};
static_assert(std::atomic<uint32_t>::is_always_lock_free, "processes share these without a lock");

// `sleeping` before the owner's progress thread has seen the endpoint: whatever it does, an arrival
// wakes it.
constexpr uint32_t kNotYetPolled = 1;
constexpr uint32_t kFirstSleep = 2;

inline uint32_t RingSize(uint32_t max_receives) {
  uint32_t size = 1;
  while (size < max_receives) size *= 2;
  return size;
}

// The ring of immediates follows the page's fields; the peer writes it.
inline std::atomic<uint32_t>* Ring(ControlPage* page) {
  return reinterpret_cast<std::atomic<uint32_t>*>(page + 1);
}

inline size_t ControlBytes(uint32_t max_receives) {
  return sizeof(ControlPage) + RingSize(max_receives) * sizeof(std::atomic<uint32_t>);
}

using Token = std::array<uint8_t, 16>;

// What Acceptor::offer() carries. The name of the socket is no secret (/proc/net/unix lists it),
// the two others are: with the first the connecting side proves that it was given the offer, with
// the second the accepting side that it made it.
struct Offer {
  static constexpr uint32_t kMagic = 0x6f534252;
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  Token boot_id{};
  Token name{};
  Token connect_secret{};
  Token accept_secret{};
};

// The connecting side's first message.
struct Greeting {
  static constexpr uint32_t kMagic = 0x67534252;
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  Token connect_secret{};
};

// From each side, the accepting one first, with two descriptors: its control page and the eventfd
// that wakes it.
struct Hello {
  static constexpr uint32_t kMagic = 0x68534252;
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  Token accept_secret{};
  uint32_t max_receives = 0;
  uint32_t first_index = 0;
};

// An exported region: both the message that carries its descriptor, and the bytes that Export
// returns.
struct Region {
  static constexpr uint32_t kMagic = 0x72534252;
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  uint64_t id = 0;
  uint64_t bytes = 0;
  uint32_t writable = 0;
  uint32_t reserved = 0;
};

template <typename T>
std::string Pack(const T& record) {
  static_assert(std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T>);
  return std::string(reinterpret_cast<const char*>(&record), sizeof(T));
}

// False unless `bytes` are a record of this kind and version.
template <typename T>
bool Unpack(const std::string& bytes, T* record) {
  if (bytes.size() != sizeof(T)) return false;
  std::memcpy(record, bytes.data(), sizeof(T));
  return record->magic == T::kMagic && record->version == kVersion;
}

}  // namespace rdmabatch::shm

#endif  // TF_RDMABATCH_CC_TRANSPORT_SHM_LAYOUT_H_
