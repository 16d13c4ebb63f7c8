// Property tests of the slot bitmaps: random schedules, compared with sets.
#include "tf_rdmabatch/cc/memory/slot_bitmap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <set>
#include <vector>

namespace rdmabatch {
namespace {

using Slots = std::set<uint32_t>;

// A sender and a receiver, and what lies between them: announcements on their way, and freed words
// of which the sender may read any mix of old and new bytes.
class Model {
 public:
  Model(uint32_t slots, uint64_t seed)
      : slots_(slots),
        sender_(slots),
        receiver_(slots),
        memory_(sender_.words()),
        written_(sender_.words()),
        random_(seed) {
    for (uint32_t i = 0; i < slots; ++i) free_.insert(i);
  }

  void Step() {
    switch (random_() % 6) {
      case 0:
        return Take(1 + Below(slots_));
      case 1:
        return Fill();
      case 2:
        return Announce();
      case 3:
        return Perceive();
      case 4:
        return Free();
      default:
        return Absorb();
    }
  }

  // Everything comes back.
  void Drain() {
    while (!filling_.empty()) Fill();
    Announce();
    while (!wire_.empty()) Perceive();
    while (!held_.empty()) Free();
    memory_ = written_;
    Absorb();
    EXPECT_EQ(sender_.free_slots(), slots_);
    EXPECT_EQ(free_.size(), slots_);
  }

  uint64_t phases() const { return phases_; }

 private:
  uint64_t Below(uint64_t limit) { return random_() % limit; }

  void Take(uint64_t count) {
    for (; count > 0; --count) {
      const uint32_t slot = sender_.Take();
      if (free_.empty()) {
        ASSERT_EQ(slot, kNoSlot);
        return;
      }
      ASSERT_EQ(slot, *free_.begin()) << "the lowest free slot";
      free_.erase(slot);
      if (Below(4) == 0) {
        sender_.BeginFilling(slot);
        filling_.insert(slot);
      } else {
        taken_.insert(slot);
      }
    }
    ASSERT_EQ(sender_.free_slots(), free_.size());
  }

  // Some that other threads were filling are full.
  void Fill() {
    for (auto it = filling_.begin(); it != filling_.end();) {
      if (Below(2) == 0) {
        ++it;
        continue;
      }
      sender_.EndFilling(*it);
      taken_.insert(*it);
      it = filling_.erase(it);
    }
  }

  void Announce() {
    std::vector<uint64_t> words;
    for (uint32_t w = 0; w < sender_.words(); ++w) {
      uint64_t expected = 0;
      for (const uint32_t slot : taken_) {
        if (slot / kSlotsPerWord == w) expected |= BitOf(slot);
      }
      ASSERT_EQ(sender_.Unannounced(w), expected);
      words.push_back(sender_.Announce(w));
      ASSERT_EQ(sender_.Unannounced(w), 0u);
    }
    wire_.push_back({words, taken_});
    taken_.clear();
  }

  // The receiver looks once for any number of announcements.
  void Perceive() {
    if (wire_.empty()) return;
    std::vector<uint64_t> arrived;
    Slots expected;
    for (uint64_t count = 1 + Below(wire_.size()); count > 0; --count) {
      arrived = wire_.front().words;
      for (const uint32_t slot : wire_.front().slots) ASSERT_TRUE(expected.insert(slot).second);
      wire_.pop_front();
    }
    Slots found;
    for (uint32_t w = 0; w < receiver_.words(); ++w) {
      bool valid = true;
      const uint64_t news = receiver_.News(w, arrived[w], &valid);
      ASSERT_TRUE(valid);
      ForEachBit(news,
                 [&](int bit) { found.insert(w * kSlotsPerWord + static_cast<uint32_t>(bit)); });
      receiver_.See(w, news);
      ASSERT_EQ(receiver_.News(w, arrived[w], &valid), 0u) << "news is news once";
    }
    ASSERT_EQ(found, expected);
    for (const uint32_t slot : found) ASSERT_TRUE(held_.insert(slot).second);
    phases_ += found.size();
    ASSERT_EQ(receiver_.held(), held_.size());
  }

  // A random part of what is held, of one word.
  void Free() {
    if (held_.empty()) return;
    const uint32_t w =
        *std::next(held_.begin(), static_cast<int64_t>(Below(held_.size()))) / kSlotsPerWord;
    uint64_t mask = 0;
    for (auto it = held_.begin(); it != held_.end();) {
      if (*it / kSlotsPerWord == w && (mask == 0 || Below(2) == 0)) {
        mask |= BitOf(*it);
        going_back_.insert(*it);
        it = held_.erase(it);
      } else {
        ++it;
      }
    }
    written_[w] = receiver_.Free(w, mask);
    ASSERT_EQ(receiver_.held(), held_.size());
  }

  // The device has written any bytes of the words so far, none of them twice.
  void Absorb() {
    for (uint32_t w = 0; w < sender_.words(); ++w) {
      const uint64_t bytes = random_();
      uint64_t mask = 0;
      for (int i = 0; i < 8; ++i) {
        if ((bytes >> i & 1) != 0) mask |= uint64_t{255} << (8 * i);
      }
      memory_[w] = (memory_[w] & ~mask) | (written_[w] & mask);
    }
    for (auto it = going_back_.begin(); it != going_back_.end();) {
      const uint32_t w = *it / kSlotsPerWord;
      if (((memory_[w] ^ written_[w]) & BitOf(*it)) == 0) {
        ASSERT_TRUE(free_.insert(*it).second);
        it = going_back_.erase(it);
      } else {
        ++it;
      }
    }
    for (uint32_t w = 0; w < sender_.words(); ++w) ASSERT_TRUE(sender_.AbsorbFreed(w, memory_[w]));
    ASSERT_EQ(sender_.free_slots(), free_.size());
  }

  struct Announcement {
    std::vector<uint64_t> words;
    Slots slots;
  };

  const uint32_t slots_;
  SlotSender sender_;
  SlotReceiver receiver_;
  std::vector<uint64_t> memory_;   // freed words as the sender finds them
  std::vector<uint64_t> written_;  // freed words as the receiver wrote them last
  std::deque<Announcement> wire_;
  Slots free_;
  Slots filling_;
  Slots taken_;  // and full
  Slots held_;
  Slots going_back_;
  uint64_t phases_ = 0;
  std::mt19937_64 random_;
};

TEST(SlotBitmap, RandomSchedulesAgreeWithSets) {
  for (const uint32_t slots : {64u, 128u, 256u}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      Model model(slots, seed);
      for (int i = 0; i < 2000; ++i) {
        model.Step();
        if (::testing::Test::HasFatalFailure()) {
          FAIL() << "slots " << slots << ", seed " << seed << ", step " << i;
        }
      }
      model.Drain();
      // Every bit has changed its phase many times.
      EXPECT_GT(model.phases(), 20u * slots);
    }
  }
}

TEST(SlotBitmap, EveryMixOfBytesFreesASubset) {
  for (uint32_t mix = 0; mix < 256; ++mix) {
    SlotSender sender(64);
    for (int i = 0; i < 64; ++i) sender.Take();
    sender.Announce(0);
    const uint64_t freed = 0xf0a5'0ff3'8001'ffffu;
    uint64_t mask = 0;
    for (int byte = 0; byte < 8; ++byte) {
      if ((mix >> byte & 1) != 0) mask |= uint64_t{255} << (8 * byte);
    }
    ASSERT_TRUE(sender.AbsorbFreed(0, freed & mask));
    EXPECT_EQ(sender.free_slots(), static_cast<uint32_t>(PopCount(freed & mask)));
    ASSERT_TRUE(sender.AbsorbFreed(0, freed));
    EXPECT_EQ(sender.free_slots(), static_cast<uint32_t>(PopCount(freed)));
  }
}

TEST(SlotBitmap, FreeingWhatWasNotAnnouncedIsRefusedAndChangesNothing) {
  SlotSender sender(64);
  EXPECT_FALSE(sender.AbsorbFreed(0, 1)) << "never taken";
  EXPECT_EQ(sender.Take(), 0u);
  EXPECT_FALSE(sender.AbsorbFreed(0, 1)) << "taken, not announced";
  sender.Announce(0);
  EXPECT_FALSE(sender.AbsorbFreed(0, 3)) << "one announced, one not";
  EXPECT_EQ(sender.free_slots(), 63u);
  EXPECT_TRUE(sender.AbsorbFreed(0, 1));
  EXPECT_FALSE(sender.AbsorbFreed(0, 0)) << "freed twice";
  EXPECT_EQ(sender.free_slots(), 64u);
}

TEST(SlotBitmap, AnnouncingWhatIsHeldIsNotValid) {
  SlotReceiver receiver(64);
  bool valid = true;
  EXPECT_EQ(receiver.News(0, 5, &valid), 5u);
  receiver.See(0, 5);
  EXPECT_TRUE(valid);
  receiver.News(0, 4, &valid);
  EXPECT_FALSE(valid);
  valid = true;
  receiver.Free(0, 1);
  EXPECT_EQ(receiver.News(0, 4, &valid), 1u) << "freed, so it may come again";
  EXPECT_TRUE(valid);
}

TEST(SlotBitmap, WhatIsNotMarkedIsNewsAgain) {
  SlotReceiver receiver(64);
  bool valid = true;
  EXPECT_EQ(receiver.News(0, 6, &valid), 6u);
  receiver.See(0, 2);
  EXPECT_EQ(receiver.News(0, 6, &valid), 4u);
  EXPECT_TRUE(valid);
  EXPECT_EQ(receiver.held(), 1u);
}

TEST(SlotBitmap, OneByOne) {
  SlotSender sender(128);
  SlotReceiver receiver(128);
  std::vector<uint64_t> freed(2);
  std::mt19937 random(3);
  std::vector<uint32_t> flying;
  for (int i = 0; i < 5000; ++i) {
    if (random() % 2 == 0) {
      const uint32_t slot = sender.Take();
      if (slot == kNoSlot) continue;
      sender.AnnounceOne(slot);
      ASSERT_EQ(sender.Unannounced(slot / kSlotsPerWord), 0u);
      ASSERT_TRUE(receiver.SeeOne(slot));
      ASSERT_EQ(receiver.held(), flying.size() + 1);
      flying.push_back(slot);
    } else if (!flying.empty()) {
      std::swap(flying.back(), flying[random() % flying.size()]);
      const uint32_t w = flying.back() / kSlotsPerWord;
      freed[w] = receiver.Free(w, BitOf(flying.back()));
      flying.pop_back();
      ASSERT_TRUE(sender.AbsorbFreed(w, freed[w]));
      ASSERT_EQ(sender.free_slots(), 128 - flying.size());
    }
  }
  SlotReceiver fresh(64);
  EXPECT_TRUE(fresh.SeeOne(63));
  EXPECT_FALSE(fresh.SeeOne(63)) << "announced while in use";
}

}  // namespace
}  // namespace rdmabatch
