#include "tf_rdmabatch/cc/engine/reassembly.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tf_rdmabatch/cc/engine/wire.h"

namespace rdmabatch {
namespace {

class ReassemblyTest : public ::testing::Test {
 protected:
  void SetUp() override { reassembly_.SetLimits(1000, 100, 3); }
  // True: accepted; what it completed is in whole_.
  bool Take(uint64_t message, uint64_t total, uint64_t offset, const std::string& piece) {
    const FragmentHeader header{message, total, offset};
    std::vector<uint8_t> fragment(sizeof(header) + piece.size());
    std::memcpy(fragment.data(), &header, sizeof(header));
    std::memcpy(fragment.data() + sizeof(header), piece.data(), piece.size());
    whole_ = {};
    return reassembly_.Take({fragment.data(), fragment.size()}, &whole_);
  }
  std::string whole() const {
    return whole_.bytes == nullptr
               ? ""
               : std::string(whole_.bytes.get(), whole_.bytes.get() + whole_.size);
  }

  Reassembly reassembly_;
  Reassembly::Whole whole_;
};

TEST_F(ReassemblyTest, FragmentsInAnyOrderMakeTheMessage) {
  EXPECT_TRUE(Take(7, 6, 4, "ef"));
  EXPECT_EQ(whole(), "");
  EXPECT_TRUE(Take(8, 2, 0, "x"));
  EXPECT_TRUE(Take(7, 6, 0, "abcd"));
  EXPECT_EQ(whole(), "abcdef");
  EXPECT_TRUE(Take(8, 2, 1, "y"));
  EXPECT_EQ(whole(), "xy");
}

TEST_F(ReassemblyTest, MemoryIsUsedAgainAndShowsNothingOfTheMessageBefore) {
  EXPECT_TRUE(Take(1, 8, 0, "secretly"));
  const uint8_t* const memory = whole_.bytes.get();
  reassembly_.Reuse(std::move(whole_));
  // Pieces that overlap, which leave a gap.
  EXPECT_TRUE(Take(2, 8, 4, "ab"));
  EXPECT_TRUE(Take(2, 8, 4, "cd"));
  EXPECT_TRUE(Take(2, 8, 4, "efgh"));
  EXPECT_EQ(whole_.bytes.get(), memory);
  EXPECT_EQ(whole(), std::string("\0\0\0\0efgh", 8));
  reassembly_.Reuse(std::move(whole_));
  EXPECT_TRUE(Take(3, 8, 0, "abcd"));
  EXPECT_TRUE(Take(3, 8, 0, "ABCD"));
  EXPECT_EQ(whole(), std::string("ABCD\0\0\0\0", 8));
}

TEST_F(ReassemblyTest, WhatDoesNotFitIsRefused) {
  EXPECT_FALSE(reassembly_.Take({}, &whole_));
  EXPECT_FALSE(Take(1, 1001, 0, "a"));
  EXPECT_FALSE(Take(1, 10, 0, ""));
  EXPECT_FALSE(Take(1, 10, 11, "a"));
  EXPECT_FALSE(Take(1, 10, 8, "abc"));
  EXPECT_FALSE(Take(1, 10, ~uint64_t{0}, "a"));
  EXPECT_TRUE(Take(1, 10, 0, "abcdefgh"));
  EXPECT_FALSE(Take(1, 9, 8, "a")) << "another total";
  EXPECT_FALSE(Take(1, 10, 7, "abc")) << "more than there is";
}

TEST_F(ReassemblyTest, APeerCannotTakeAllMemory) {
  EXPECT_TRUE(Take(1, 1000, 0, "a"));
  EXPECT_TRUE(Take(2, 1000, 0, "a"));
  EXPECT_FALSE(Take(3, 101, 0, "a")) << "two messages and a window are the most";
  EXPECT_TRUE(Take(3, 50, 0, "a"));
  EXPECT_TRUE(Take(4, 50, 0, "a"));
  EXPECT_FALSE(Take(5, 1, 0, "a")) << "and no more than can be on their way";
  EXPECT_TRUE(Take(3, 50, 1, std::string(49, 'b')));
  EXPECT_TRUE(Take(5, 1, 0, "a")) << "a complete one makes room";
}

// An address space has not so much. (A sanitizer's allocator ends the process instead.)
TEST_F(ReassemblyTest, WhatThereIsNoMemoryForIsRefused) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer refuses to try";
#endif
  reassembly_.SetLimits(uint64_t{1} << 60, 0, 1);
  EXPECT_FALSE(Take(1, uint64_t{1} << 60, 0, "a"));
}

TEST_F(ReassemblyTest, PiecesThatOverlapShowNothingOfTheMemory) {
  EXPECT_TRUE(Take(1, 4, 0, "ab"));
  EXPECT_TRUE(Take(1, 4, 0, "cd"));
  EXPECT_EQ(whole(), std::string("cd\0\0", 4));
}

}  // namespace
}  // namespace rdmabatch
