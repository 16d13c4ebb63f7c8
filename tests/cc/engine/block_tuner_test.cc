#include "tf_rdmabatch/cc/engine/block_tuner.h"

#include <gtest/gtest.h>

#include <map>

namespace rdmabatch::testing {
namespace {

constexpr int kSettleRounds =
    BlockTuner::kWarmUpRounds + BlockTuner::kPasses * 3 * (1 + BlockTuner::kRounds);

class BlockTunerTest : public ::testing::Test {
 protected:
  // Runs rounds that take so long with each size, and of a turn's first one ten times as long.
  void Run(int rounds, const std::map<uint32_t, int64_t>& round_ns) {
    uint32_t before = 0;
    for (int i = 0; i < rounds; ++i) {
      const uint32_t bytes = tuner_.Next(++step_, now_);
      now_ += round_ns.at(bytes) * (bytes == before ? 1 : 10);
      before = bytes;
      ++used_[bytes];
    }
  }

  std::vector<std::string> reports_;
  BlockTuner tuner_{{100, 200, 400},
                    [this](const std::string& report) { reports_.push_back(report); }};
  uint64_t step_ = 0;
  int64_t now_ = 1000;
  std::map<uint32_t, int> used_;
};

TEST_F(BlockTunerTest, KeepsTheSizeWithTheShortestRounds) {
  Run(kSettleRounds + 1, {{100, 3'000'000}, {200, 1'000'000}, {400, 2'000'000}});
  EXPECT_EQ(tuner_.bytes(), 200u);
  EXPECT_GE(used_[100], BlockTuner::kPasses * BlockTuner::kRounds);
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0],
            "block size: tried 100 bytes (3.000 ms a round), 200 bytes (1.000 ms a round), 400 "
            "bytes (2.000 ms a round); keeps 200 bytes");
  // It stays.
  Run(100, {{200, 1'000'000'000}});
  EXPECT_EQ(reports_.size(), 1u);
}

TEST_F(BlockTunerTest, KeepsTheLastSizeWhereNoneIsClearlyBetter) {
  Run(kSettleRounds + 1, {{100, 99}, {200, 98}, {400, 100}});
  EXPECT_EQ(tuner_.bytes(), 400u);
  EXPECT_EQ(reports_.size(), 1u);
}

TEST_F(BlockTunerTest, APauseSpoilsOneTurnAlone) {
  Run(BlockTuner::kWarmUpRounds + 3, {{100, 50}, {200, 90}, {400, 100}});
  now_ += 1'000'000'000;
  Run(kSettleRounds, {{100, 50}, {200, 90}, {400, 100}});
  EXPECT_EQ(tuner_.bytes(), 100u);
}

TEST_F(BlockTunerTest, ManyPushesOfAStepAreOneRound) {
  for (int i = 0; i < 10 * kSettleRounds; ++i) EXPECT_EQ(tuner_.Next(7, i), 400u);
  EXPECT_EQ(tuner_.Next(6, 0), 400u);
  EXPECT_TRUE(reports_.empty());
}

TEST(BlockTunerSizes, FitIntoASlot) {
  const uint32_t grain = BlockTuner::kGrainBytes;
  EXPECT_EQ(BlockTuner::SizesFor(64 << 10), (std::vector<uint32_t>{grain, 2 * grain}));
  EXPECT_EQ(BlockTuner::SizesFor(256 << 10).back(), 8 * grain);
  // Small slots take a block in pieces.
  EXPECT_EQ(BlockTuner::SizesFor(4096), std::vector<uint32_t>{grain});
}

}  // namespace
}  // namespace rdmabatch::testing
