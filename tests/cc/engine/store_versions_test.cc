// Two versions in turn.
#include <atomic>
#include <thread>

#include "tests/cc/engine/store_harness.h"

namespace rdmabatch::testing {
namespace {

using Floats = std::vector<float>;

constexpr uint64_t kElements = 40000;  // several blocks, and enough bytes for a view
constexpr uint64_t kBytes = kElements * sizeof(float);

class StoreVersions : public StoreTest {
 protected:
  void SetUp() override {
    StoreTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    AddWorker();
    ParameterSpec spec = Spec("w", {kElements});
    spec.versions = 2;
    ASSERT_OK(server_.Serve(spec));
    parameter_ = workers_[0]->Open("w");
    ASSERT_NE(parameter_, nullptr);
  }
  void Publish(uint64_t version) {
    const Floats values(kElements, static_cast<float>(version));
    ASSERT_OK(server_.Publish("w", version, values.data(), kBytes));
  }
  // What all elements are, or -1 when they differ; `*got` is the version that was read.
  float Pull(uint64_t version, uint64_t* got) {
    Floats values(kElements, -1);
    const Status pulled = workers_[0]->client->Pull(*parameter_, version, values.data(), kBytes,
                                                    Patience(), nullptr, got);
    EXPECT_TRUE(pulled.ok()) << pulled.message();
    return values == Floats(kElements, values[0]) ? values[0] : -1;
  }

  std::shared_ptr<ParameterClient::Parameter> parameter_;
};

TEST_P(StoreVersions, TheVersionThatIsAskedForStaysForOneMore) {
  Publish(1);
  uint64_t got = 0;
  EXPECT_EQ(Pull(1, &got), 1);
  Publish(2);
  ASSERT_OK(workers_[0]->client->WaitVersion(*parameter_, 2, Patience()));
  EXPECT_EQ(Pull(1, &got), 1);
  EXPECT_EQ(got, 1u);
  EXPECT_EQ(Pull(2, &got), 2);
  EXPECT_EQ(got, 2u);
  Publish(3);
  ASSERT_OK(workers_[0]->client->WaitVersion(*parameter_, 3, Patience()));
  EXPECT_EQ(Pull(1, &got), 3);
  EXPECT_EQ(got, 3u);
  EXPECT_EQ(Pull(2, &got), 2);
}

TEST_P(StoreVersions, AReaderThatIsLateGetsAWholeVersion) {
  Publish(1);
  std::atomic<bool> stop{false};
  std::thread publisher([&] {
    for (uint64_t version = 2; !stop; ++version) Publish(version);
  });
  for (uint64_t pulls = 1; pulls <= 200; ++pulls) {
    uint64_t got = 0;
    const float value = Pull(pulls, &got);
    EXPECT_EQ(value, static_cast<float>(got));
    EXPECT_GE(got, pulls);
  }
  stop = true;
  publisher.join();
}

TEST_P(StoreVersions, SharedMemoryIsThereUntilTheVersionAfterTheNext) {
  Publish(1);
  ASSERT_OK(workers_[0]->client->WaitVersion(*parameter_, 1, Patience()));
  const uint8_t* const first = workers_[0]->client->Shared(*parameter_, 1);
  if (!ParameterClient::IsDirect(*parameter_)) {
    EXPECT_EQ(first, nullptr);
    return;
  }
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 4096, 0u);
  EXPECT_EQ(workers_[0]->client->Shared(*parameter_, 2), nullptr);
  Publish(2);
  EXPECT_EQ(*reinterpret_cast<const float*>(first), 1);
  EXPECT_EQ(workers_[0]->client->Shared(*parameter_, 1), first);
  const uint8_t* const second = workers_[0]->client->Shared(*parameter_, 2);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(second, first);
  Publish(3);
  EXPECT_EQ(workers_[0]->client->Shared(*parameter_, 1), nullptr);
  EXPECT_EQ(workers_[0]->client->Shared(*parameter_, 3), first);
}

TEST_P(StoreVersions, SmallParametersAreNotShared) {
  ParameterSpec small = Spec("small", {100});
  small.versions = 2;
  ASSERT_OK(server_.Serve(small));
  const Floats values(kElements, 1);
  ASSERT_OK(server_.Publish("small", 1, values.data(), 400));
  auto parameter = workers_[0]->Open("small");
  ASSERT_NE(parameter, nullptr);
  EXPECT_EQ(workers_[0]->client->Shared(*parameter, 1), nullptr);
  EXPECT_EQ(server_.published("small").status().code(), StatusCode::kFailedPrecondition);
}

TEST_P(StoreVersions, WhatCannotBeServedIsSaid) {
  ParameterSpec spec = Spec("x", {8}, 1, DType::kFloat32, Consistency::kAsp);
  spec.versions = 2;
  EXPECT_NE(server_.Serve(spec).message().find("keeps 1 version"), std::string::npos);
  spec.consistency = Consistency::kBsp;
  spec.versions = 3;
  EXPECT_NE(server_.Serve(spec).message().find("1 or 2 versions"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Transports, StoreVersions, ::testing::ValuesIn(Subjects()), SubjectName);

}  // namespace
}  // namespace rdmabatch::testing
