// Phase bitmaps of one direction of a connection: which slots are announced, and which are free
// again.
//
// A word is written by one side only and never cleared: to announce or to free slot i its writer
// toggles bit i. The other side finds news by comparing with what it saw last. docs/protocol.md has
// the states; tests/models proves them. SlotSender is not thread-safe. Of SlotReceiver, Free and
// freed may be called by any thread, the rest by one.
#ifndef TF_RDMABATCH_CC_MEMORY_SLOT_BITMAP_H_
#define TF_RDMABATCH_CC_MEMORY_SLOT_BITMAP_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "tf_rdmabatch/cc/base/bits.h"

namespace rdmabatch {

inline constexpr uint32_t kSlotsPerWord = 64;
inline constexpr uint32_t kNoSlot = ~uint32_t{0};

// A slot's bit in its word.
constexpr uint64_t BitOf(uint32_t slot) { return uint64_t{1} << (slot % kSlotsPerWord); }

// The sender's half: free -> taken (being filled) -> announced -> free.
class SlotSender {
 public:
  explicit SlotSender(uint32_t slots)
      : taken_(slots / kSlotsPerWord),
        announced_(taken_.size()),
        filling_(taken_.size()),
        freed_(taken_.size()),
        free_slots_(slots) {}

  uint32_t words() const { return static_cast<uint32_t>(taken_.size()); }
  uint32_t free_slots() const { return free_slots_; }

  // The lowest free slot (the one whose cache lines are most likely warm), or kNoSlot.
  uint32_t Take() {
    for (uint32_t w = 0; w < words(); ++w) {
      uint64_t free = ~(taken_[w] ^ freed_[w]);
      if (free == 0) continue;
      int bit = LowestBit(free);
      taken_[w] ^= uint64_t{1} << bit;
      --free_slots_;
      return w * kSlotsPerWord + static_cast<uint32_t>(bit);
    }
    return kNoSlot;
  }

  // In between, Announce passes over a taken slot: somebody still fills it.
  void BeginFilling(uint32_t slot) { filling_[slot / kSlotsPerWord] |= BitOf(slot); }
  void EndFilling(uint32_t slot) { filling_[slot / kSlotsPerWord] &= ~BitOf(slot); }

  // Slots of word `w` that the next Announce(w) announces: taken since the last, and filled.
  uint64_t Unannounced(uint32_t w) const { return (taken_[w] ^ announced_[w]) & ~filling_[w]; }

  // Returns the word to write to the receiver's `arrived`.
  uint64_t Announce(uint32_t w) { return announced_[w] ^= Unannounced(w); }

  // Announces one slot that is confirmed by itself (no word is written for it).
  void AnnounceOne(uint32_t slot) { announced_[slot / kSlotsPerWord] ^= BitOf(slot); }

  // Takes over what the receiver wrote to `freed` word `w`; false when it frees what was never
  // announced.
  bool AbsorbFreed(uint32_t w, uint64_t freed) {
    uint64_t news = freed ^ freed_[w];
    if (news == 0) return true;
    if ((news & ~(announced_[w] ^ freed_[w])) != 0) return false;
    freed_[w] = freed;
    free_slots_ += static_cast<uint32_t>(PopCount(news));
    return true;
  }

 private:
  std::vector<uint64_t> taken_;
  std::vector<uint64_t> announced_;
  std::vector<uint64_t> filling_;
  std::vector<uint64_t> freed_;
  uint32_t free_slots_;
};

// The receiver's half: empty -> seen (being consumed) -> empty.
class SlotReceiver {
 public:
  explicit SlotReceiver(uint32_t slots) : seen_(slots / kSlotsPerWord), freed_(seen_.size()) {}

  uint32_t words() const { return static_cast<uint32_t>(seen_.size()); }

  // Slots of word `w` that are new in `arrived`. `*valid` turns false when one of them is still
  // being consumed: a correct sender cannot announce it.
  uint64_t News(uint32_t w, uint64_t arrived, bool* valid) const {
    uint64_t news = arrived ^ seen_[w];
    if ((news & (seen_[w] ^ freed(w))) != 0) *valid = false;
    return news;
  }

  // Marks news as seen. What is not marked is news again.
  void See(uint32_t w, uint64_t mask) { seen_[w] ^= mask; }

  // The same for one slot that was announced by itself; false when it is still being consumed.
  bool SeeOne(uint32_t slot) {
    const uint32_t w = slot / kSlotsPerWord;
    const uint64_t mask = BitOf(slot);
    bool valid = true;
    News(w, seen_[w] ^ mask, &valid);
    See(w, mask);
    return valid;
  }

  // Frees the slots of `mask`; returns the word to write to the sender's `freed`.
  uint64_t Free(uint32_t w, uint64_t mask) {
    return freed_[w].fetch_xor(mask, std::memory_order_seq_cst) ^ mask;
  }
  // Slots that are being consumed.
  uint32_t held() const {
    uint32_t held = 0;
    for (uint32_t w = 0; w < words(); ++w)
      held += static_cast<uint32_t>(PopCount(seen_[w] ^ freed(w)));
    return held;
  }
  uint64_t freed(uint32_t w) const { return freed_[w].load(std::memory_order_seq_cst); }

 private:
  std::vector<uint64_t> seen_;
  std::vector<std::atomic<uint64_t>> freed_;
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_MEMORY_SLOT_BITMAP_H_
