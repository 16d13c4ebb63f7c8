// Steps that are left out, and values in pieces.
#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/cc/engine/store_harness.h"

namespace rdmabatch::testing {
namespace {

using Floats = std::vector<float>;

constexpr uint64_t kElements = 40000;  // several blocks, and enough bytes for a view
constexpr uint64_t kBytes = kElements * sizeof(float);

class StoreSteps : public StoreTest {
 protected:
  void SetUp() override {
    StoreTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_OK(server_.Serve(Spec("w", {kElements}, 2)));
    for (int i = 0; i < 2; ++i) parameters_.push_back(AddWorker().Open("w"));
  }
  Status Push(uint32_t worker, uint64_t step, float value) {
    const Floats values(kElements, value);
    return workers_[worker]->client->Push(*parameters_[worker], step, worker, values.data(), kBytes,
                                          Patience());
  }
  // What all elements of the sum are, or -1 when they differ.
  float Collect(uint64_t step) {
    Floats sum(kElements, -1);
    const Status collected = server_.Collect("w", step, sum.data(), kBytes, Patience());
    EXPECT_TRUE(collected.ok()) << collected.message();
    return sum == Floats(kElements, sum[0]) ? sum[0] : -1;
  }

  std::vector<std::shared_ptr<ParameterClient::Parameter>> parameters_;
};

TEST_P(StoreSteps, WhatCameOfAStepThatIsLeftOutIsDropped) {
  ASSERT_OK(Push(0, 1, 100));
  ASSERT_OK(Push(0, 3, 3));
  std::thread late([this] {
    EXPECT_TRUE(Push(1, 2, 100).ok());
    EXPECT_TRUE(Push(1, 3, 4).ok());
  });
  EXPECT_EQ(Collect(3), 7);
  late.join();
  // Late ones of the past too, and no later call hears of them.
  ASSERT_OK(Push(1, 2, 100));
  ASSERT_OK(Push(0, 4, 1));
  ASSERT_OK(Push(1, 4, 1));
  EXPECT_EQ(Collect(4), 2);
  for (const uint64_t step : {uint64_t{4}, ~uint64_t{0}}) {
    EXPECT_EQ(server_.Collect("w", step, nullptr, 0, Patience()).code(),
              StatusCode::kFailedPrecondition);
  }
  EXPECT_GT(server_.counters().refused, 0u);
}

TEST_P(StoreSteps, WhatIsHeldCountsWhenItsStepComes) {
  ASSERT_OK(Push(0, 5, 2));
  ASSERT_OK(Push(1, 1, 100));
  ASSERT_OK(Push(1, 5, 3));
  EXPECT_EQ(Collect(5), 5);
  ASSERT_OK(Push(0, 6, 1));
  ASSERT_OK(Push(1, 6, 1));
  EXPECT_EQ(Collect(6), 2);
}

TEST_P(StoreSteps, ACompleteStepMayBeLeftOut) {
  ASSERT_OK(Push(0, 1, 100));
  ASSERT_OK(Push(1, 1, 100));
  const Deadline deadline = Patience();
  while (!server_.IsComplete("w", 1) && !deadline.expired()) sched_yield();
  EXPECT_FALSE(server_.IsComplete("w", 8));
  ASSERT_OK(Push(0, 8, 1));
  EXPECT_FALSE(server_.IsComplete("w", 8));
  ASSERT_OK(Push(1, 8, 2));
  EXPECT_EQ(Collect(8), 3);
}

TEST_P(StoreSteps, StepsAreLeftOutWhileTheyArrive) {
  constexpr uint64_t kSteps = 60;
  std::vector<std::thread> pushers;
  std::atomic<uint64_t> collected{0};
  for (uint32_t worker = 0; worker < 2; ++worker) {
    pushers.emplace_back([this, worker, &collected] {
      for (uint64_t step = 1; step <= kSteps; ++step) {
        // Not so fast that a step which is wanted is given up.
        while (collected.load() + 3 < step) sched_yield();
        if (worker == 1 && step % 3 == 1) continue;
        EXPECT_TRUE(Push(worker, step, static_cast<float>(step)).ok());
      }
    });
  }
  for (uint64_t step = 3; step <= kSteps; step += 3) {
    EXPECT_EQ(Collect(step), static_cast<float>(2 * step));
    collected.store(step);
  }
  for (std::thread& pusher : pushers) pusher.join();
}

TEST_P(StoreSteps, PiecesArePublishedWhereTheyBelong) {
  const Floats first(1000, 1);
  const Floats second(30000, 2);
  const PublishedPiece pieces[] = {{0, 4000, first.data()}, {4096, 120000, second.data()}};
  ASSERT_OK(server_.Publish("w", 1, pieces));
  Floats values(kElements, -1);
  ASSERT_OK(workers_[0]->client->Pull(*parameters_[0], 1, values.data(), kBytes, Patience()));
  EXPECT_EQ(Floats(values.begin(), values.begin() + 1000), first);
  EXPECT_EQ(Floats(values.begin() + 1024, values.begin() + 31024), second);
  EXPECT_EQ(values[1001], 0);
  const PublishedPiece beyond[] = {{kBytes - 4, 8, first.data()}};
  EXPECT_EQ(server_.Publish("w", 2, beyond).code(), StatusCode::kInvalidArgument);
}

TEST_P(StoreSteps, WhatIsKeptOfThePublishedMemoryStays) {
  auto view = server_.PublishedView("w");
  ASSERT_TRUE(view.ok() && *view != nullptr);
  auto* const values = reinterpret_cast<float*>(const_cast<uint8_t*>((*view)->data()));
  std::fill(values, values + kElements, 1.0F);
  const PublishedPiece in_place[] = {{0, kBytes, nullptr}};
  ASSERT_OK(server_.Publish("w", 1, in_place));
  Floats pulled(kElements);
  ASSERT_OK(workers_[0]->client->Pull(*parameters_[0], 1, pulled.data(), kBytes, Patience()));
  EXPECT_EQ(pulled, Floats(kElements, 1));
  auto renewed = server_.PublishedView("w", /*renew=*/true);
  ASSERT_TRUE(renewed.ok());
  EXPECT_NE(*renewed, *view);
  const Floats twos(kElements, 2);
  ASSERT_OK(server_.Publish("w", 2, twos.data(), kBytes));
  EXPECT_EQ(values[kElements - 1], 1);
  EXPECT_EQ(reinterpret_cast<const float*>((*renewed)->data())[kElements - 1], 2);
  EXPECT_EQ(server_.counters().in_place, 1u);
}

INSTANTIATE_TEST_SUITE_P(Transports, StoreSteps, ::testing::ValuesIn(Subjects()), SubjectName);

}  // namespace
}  // namespace rdmabatch::testing
