// Messages of several blocks.
#include <sched.h>

#include <algorithm>

#include "tests/cc/engine/store_harness.h"

namespace rdmabatch::testing {
namespace {

using Floats = std::vector<float>;

constexpr uint32_t kBlockBytes = 256;
constexpr uint64_t kElements = 1000;  // 15 blocks and 160 bytes
constexpr uint64_t kBytes = kElements * sizeof(float);

class StoreBlocks : public StoreTest {
 protected:
  void SetUp() override {
    StoreTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_OK(
        server_.Serve(Spec("w", {kElements}, 2, DType::kFloat32, Consistency::kBsp, kBlockBytes)));
    for (int i = 0; i < 2; ++i) parameters_.push_back(AddWorker().Open("w"));
  }
  Status Push(uint32_t worker, uint64_t step, uint64_t message_bytes, float factor) {
    Floats values(kElements);
    for (size_t i = 0; i < kElements; ++i) values[i] = factor * static_cast<float>(i);
    workers_[worker]->client->SetMessageBytes(message_bytes);
    return workers_[worker]->client->Push(*parameters_[worker], step, worker, values.data(), kBytes,
                                          Patience());
  }
  bool Collected(uint64_t step, float factor) {
    Floats sum(kElements, -1);
    const Status collected = server_.Collect("w", step, sum.data(), kBytes, Patience());
    EXPECT_TRUE(collected.ok()) << collected.message();
    for (size_t i = 0; i < kElements; ++i) {
      if (sum[i] != factor * static_cast<float>(i)) return false;
    }
    return true;
  }

  std::vector<std::shared_ptr<ParameterClient::Parameter>> parameters_;
};

TEST_P(StoreBlocks, WorkersNeedNotAgreeOnTheirNumber) {
  uint64_t step = 0;
  // None, a part of one, some, all that a slot holds, all.
  for (const uint64_t bytes : {0, 100, 1024, 3840, 1 << 20}) {
    const uint64_t before = workers_[0]->engine->counters().messages_sent;
    ASSERT_OK(Push(0, ++step, bytes, 2));
    const uint64_t messages = workers_[0]->engine->counters().messages_sent - before;
    const uint64_t blocks = std::max<uint64_t>(1, bytes / kBlockBytes);
    EXPECT_EQ(messages, (16 + std::min<uint64_t>(blocks, 16) - 1) / std::min<uint64_t>(blocks, 16));
    ASSERT_OK(Push(1, step, 512, 3));
    EXPECT_TRUE(Collected(step, 5)) << bytes;
  }
}

TEST_P(StoreBlocks, OfALaterStepAreHeld) {
  ASSERT_OK(Push(0, 2, 2048, 1));
  ASSERT_OK(Push(1, 2, 1 << 20, 2));
  ASSERT_OK(Push(0, 1, 256, 10));
  ASSERT_OK(Push(1, 1, 256, 20));
  EXPECT_TRUE(Collected(1, 30));
  EXPECT_TRUE(Collected(2, 3));
}

TEST_P(StoreBlocks, HaveToBeWhole) {
  const uint32_t id = 0;
  uint64_t refused = 0;
  const std::pair<uint32_t, uint32_t> wrong[] = {
      {0, 0},     {0, 300}, {0, kBlockBytes - 4}, {15, kBlockBytes}, {14, 2 * kBlockBytes},
      {1, kBytes}};
  for (const auto& [block, bytes] : wrong) {
    ASSERT_OK(workers_[0]->SendRaw({id, block, 1, 0, bytes, 0}, bytes));
    EXPECT_TRUE(Refused(++refused)) << block << " " << bytes;
  }
  // The last one has what is left.
  ASSERT_OK(workers_[0]->SendRaw({id, 14, 1, 0, kBlockBytes + 160, 0}, kBlockBytes + 160));
  ASSERT_OK(workers_[0]->SendRaw({id, 0, 1, 0, 14 * kBlockBytes, 0}, 14 * kBlockBytes));
  ASSERT_OK(Push(1, 1, 1024, 1));
  EXPECT_TRUE(Collected(1, 1));
}

TEST_P(StoreBlocks, AreSummedWhileOthersAreStillToCome) {
  const auto summed = [this](uint64_t bytes) {
    const Deadline deadline = Patience();
    while (server_.counters().bytes_copied < bytes && !deadline.expired()) sched_yield();
    return server_.counters().bytes_copied == bytes;
  };
  ASSERT_OK(workers_[0]->SendRaw({0, 8, 1, 0, 4 * kBlockBytes, 0}, 4 * kBlockBytes));
  EXPECT_TRUE(summed(4 * kBlockBytes));
  ASSERT_OK(workers_[1]->SendRaw({0, 10, 1, 1, kBlockBytes, 0}, kBlockBytes));
  EXPECT_TRUE(summed(5 * kBlockBytes));
  EXPECT_FALSE(server_.IsComplete("w", 1));
}

TEST_P(StoreBlocks, TwiceIsRefused) {
  ASSERT_OK(workers_[0]->SendRaw({0, 2, 1, 0, kBlockBytes, 0}, kBlockBytes));
  ASSERT_OK(workers_[0]->SendRaw({0, 0, 1, 0, 4 * kBlockBytes, 0}, 4 * kBlockBytes));
  EXPECT_TRUE(Refused(1));
}

INSTANTIATE_TEST_SUITE_P(Transports, StoreBlocks, ::testing::ValuesIn(Subjects()), SubjectName);

}  // namespace
}  // namespace rdmabatch::testing
