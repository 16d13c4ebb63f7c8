// What lies in a slot and in a lane's segment, and what an immediate says. docs/protocol.md
// explains it.
#ifndef TF_RDMABATCH_CC_ENGINE_WIRE_H_
#define TF_RDMABATCH_CC_ENGINE_WIRE_H_

#include <cstdint>

#include "tf_rdmabatch/cc/base/bits.h"
#include "tf_rdmabatch/cc/memory/slot_bitmap.h"

namespace rdmabatch {

// Immediates: two bits of type, 30 of slot number.
inline constexpr uint32_t kImmediateTypeMask = uint32_t{3} << 30;
// Look at the `arrived` and `freed` words.
inline constexpr uint32_t kImmediateWords = 0;
// The same, in answer to kImmediateRequest.
inline constexpr uint32_t kImmediateAnswer = 1;
// This slot alone arrived: what the `arrived` words say too, unless each is confirmed.
inline constexpr uint32_t kImmediateSlot = uint32_t{1} << 30;
// One slot is free again (confirm each).
inline constexpr uint32_t kImmediateAck = uint32_t{2} << 30;
// The sender waits for a slot: answer once one is free.
inline constexpr uint32_t kImmediateRequest = uint32_t{3} << 30;

// A slot: this header, then `count` messages, each padded to 8 bytes.
struct SlotHeader {
  uint32_t used;   // bytes, this header included
  uint16_t count;  // messages
  uint16_t reserved;
  uint64_t batch;  // number of the announcement that it belongs to, from 0
};
static_assert(sizeof(SlotHeader) == 16);
// What `count` can say.
inline constexpr uint32_t kMaxSlotMessages = 65535;

struct MessageHeader {
  uint32_t bytes;  // of payload
  uint8_t kind;
  uint8_t flags;  // kMessageFragment
  uint16_t reserved;
  uint64_t tag;
};
static_assert(sizeof(MessageHeader) == 16);

// The payload is a FragmentHeader and a piece of a message that is larger than a slot.
inline constexpr uint8_t kMessageFragment = 1;

struct FragmentHeader {
  uint64_t message;  // number of the whole message, unique in its direction
  uint64_t total;
  uint64_t offset;
};
static_assert(sizeof(FragmentHeader) == 24);

inline constexpr uint64_t kMessageAlignment = 8;

// A receiver's segment: `arrived` words, `freed` words (of the slots that this side sends into),
// slots.
struct LaneGeometry {
  uint32_t slots = 0;
  uint32_t slot_bytes = 0;

  uint32_t words() const { return slots / kSlotsPerWord; }
};

inline constexpr uint32_t kMaxSlots = 4096;
inline constexpr uint32_t kMinSlotBytes = 256;
inline constexpr uint32_t kMaxSlotBytes = 16u << 20;

inline bool ValidGeometry(const LaneGeometry& g) {
  return g.slots >= kSlotsPerWord && g.slots <= kMaxSlots && g.slots % kSlotsPerWord == 0 &&
         g.slot_bytes >= kMinSlotBytes && g.slot_bytes <= kMaxSlotBytes && g.slot_bytes % 64 == 0;
}

struct LaneLayout {
  uint64_t arrived = 0;
  uint64_t freed = 0;
  uint64_t slots = 0;
  uint64_t bytes = 0;
};

// `mine` is what this side receives into, `peer` what it sends into (whose freed words it holds).
// Words of different writers never share a cache line.
inline LaneLayout LayoutOf(const LaneGeometry& mine, const LaneGeometry& peer) {
  LaneLayout layout;
  layout.freed = AlignUp(mine.words() * sizeof(uint64_t), 128);
  layout.slots = AlignUp(layout.freed + peer.words() * sizeof(uint64_t), 4096);
  layout.bytes = layout.slots + uint64_t{mine.slots} * mine.slot_bytes;
  return layout;
}

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_WIRE_H_
