// Rounds of the parameter store over every transport.
#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>

#include "tests/cc/engine/store_harness.h"

namespace rdmabatch::testing {
namespace {

using Floats = std::vector<float>;

struct RoundCase {
  uint32_t workers;
  uint64_t elements;
  uint32_t block_bytes;
};

// W workers and a server in lockstep: w += sum of gradients, small integers so that sums are exact.
void RunRounds(ParameterServer* server, std::vector<std::unique_ptr<Worker>>* workers,
               const std::vector<ParameterSpec>& specs, int rounds) {
  std::atomic<bool> failed{false};
  std::vector<std::thread> threads;
  for (uint32_t w = 0; w < workers->size(); ++w) {
    threads.emplace_back([&, w] {
      Worker& worker = *(*workers)[w];
      std::vector<std::shared_ptr<ParameterClient::Parameter>> open;
      for (const auto& spec : specs) open.push_back(worker.Open(spec.name));
      std::vector<float> values;
      for (int round = 1; round <= rounds && !failed; ++round) {
        for (size_t i = 0; i < open.size(); ++i) {
          ASSERT_NE(open[i], nullptr);
          const ParameterInfo& info = ParameterClient::Info(*open[i]);
          values.assign(info.bytes / sizeof(float), -1);
          uint64_t got = 0;
          Status pulled = worker.client->Pull(*open[i], round, values.data(), info.bytes,
                                              Patience(), nullptr, &got);
          if (!pulled.ok()) failed = true;
          ASSERT_TRUE(pulled.ok()) << pulled.message();
          ASSERT_EQ(got, static_cast<uint64_t>(round));
          const float expected = static_cast<float>((round - 1) * (workers->size() + 1));
          for (size_t e = 0; e < values.size(); ++e) {
            if (values[e] == expected + static_cast<float>(e % 7)) continue;
            failed = true;
            FAIL() << "round " << round << " parameter " << i << " element " << e << ": "
                   << values[e];
          }
          values.assign(values.size(), static_cast<float>(w == 0 ? 2 : 1));
          Status pushed =
              worker.client->Push(*open[i], round, w, values.data(), info.bytes, Patience());
          if (!pushed.ok()) failed = true;
          ASSERT_TRUE(pushed.ok()) << pushed.message();
        }
      }
    });
  }
  std::vector<Floats> state(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    auto info = server->Info(specs[i].name);
    state[i].resize(info->bytes / sizeof(float));
    for (size_t e = 0; e < state[i].size(); ++e) state[i][e] = static_cast<float>(e % 7);
    EXPECT_TRUE(server->Publish(specs[i].name, 1, state[i].data(), info->bytes).ok());
  }
  Floats sum;
  for (int round = 1; round <= rounds && !failed; ++round) {
    for (size_t i = 0; i < specs.size() && !failed; ++i) {
      const uint64_t bytes = state[i].size() * sizeof(float);
      sum.assign(state[i].size(), -1);
      Status collected = server->Collect(specs[i].name, round, sum.data(), bytes, Patience());
      EXPECT_TRUE(collected.ok()) << collected.message();
      if (!collected.ok()) failed = true;
      for (size_t e = 0; e < sum.size(); ++e) state[i][e] += sum[e];
      EXPECT_TRUE(server->Publish(specs[i].name, round + 1, state[i].data(), bytes).ok());
    }
  }
  for (auto& thread : threads) thread.join();
}

TEST_P(StoreTest, HundredRoundsOfOneParameter) {
  int number = 0;
  for (uint32_t workers = 1; workers <= 3; ++workers) {
    AddWorker();
    for (const auto& [elements, block_bytes] : std::vector<std::pair<uint64_t, uint32_t>>{
             {1, 0}, {37, 0}, {16, 64}, {1001, 64}, {50001, 0}, {30000, 16384}}) {
      const auto spec = Spec("w" + std::to_string(number++), {elements}, workers, DType::kFloat32,
                             Consistency::kBsp, block_bytes);
      ASSERT_OK(server_.Serve(spec));
      RunRounds(&server_, &workers_, {spec}, 100);
      if (HasFailure()) return;
    }
  }
}

TEST_P(StoreTest, ManySmallParameters) {
  for (int w = 0; w < 3; ++w) AddWorker();
  std::vector<ParameterSpec> specs;
  for (uint64_t i = 0; i < 200; ++i) {
    specs.push_back(Spec("small" + std::to_string(i), {1 + i % 70, 1 + i % 3}, 3));
    ASSERT_OK(server_.Serve(specs.back()));
  }
  EXPECT_EQ(server_.names().size(), 200u);
  RunRounds(&server_, &workers_, specs, 20);
}

TEST_P(StoreTest, EveryDtypeIsSummed) {
  AddWorker();
  AddWorker();
  const uint64_t elements = 777;
  for (size_t d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    const std::string name(DTypeName(dtype));
    ASSERT_OK(server_.Serve(Spec(name, {elements}, 2, dtype)));
    // 1 and 2 in the representation of each type.
    const auto fill = [&](std::vector<uint8_t>* bytes, int value) {
      bytes->resize(elements * DTypeSize(dtype));
      for (uint64_t e = 0; e < elements; ++e) {
        uint8_t* at = bytes->data() + e * DTypeSize(dtype);
        const float f = static_cast<float>(value);
        const double g = value;
        const int32_t i = value;
        const int64_t l = value;
        uint32_t raw;
        std::memcpy(&raw, &f, 4);
        const auto bfloat = static_cast<uint16_t>(raw >> 16);
        const auto half = static_cast<uint16_t>(value == 1 ? 0x3c00 : value == 2 ? 0x4000 : 0x4200);
        switch (dtype) {
          case DType::kFloat32:
            std::memcpy(at, &f, 4);
            break;
          case DType::kFloat64:
            std::memcpy(at, &g, 8);
            break;
          case DType::kFloat16:
            std::memcpy(at, &half, 2);
            break;
          case DType::kBfloat16:
            std::memcpy(at, &bfloat, 2);
            break;
          case DType::kInt32:
            std::memcpy(at, &i, 4);
            break;
          case DType::kInt64:
            std::memcpy(at, &l, 8);
            break;
        }
      }
    };
    std::vector<uint8_t> value;
    for (uint32_t w = 0; w < 2; ++w) {
      auto parameter = workers_[w]->Open(name);
      ASSERT_NE(parameter, nullptr);
      EXPECT_EQ(ParameterClient::Info(*parameter).spec.dtype, dtype);
      fill(&value, static_cast<int>(w) + 1);
      ASSERT_OK(
          workers_[w]->client->Push(*parameter, 1, w, value.data(), value.size(), Patience()));
    }
    std::vector<uint8_t> sum(value.size());
    ASSERT_OK(server_.Collect(name, 1, sum.data(), sum.size(), Patience()));
    fill(&value, 3);
    EXPECT_EQ(sum, value) << name;
  }
}

TEST_P(StoreTest, EmptyParametersHaveRoundsToo) {
  Worker& worker = AddWorker();
  ASSERT_OK(server_.Serve(Spec("empty", {3, 0})));
  auto parameter = worker.Open("empty");
  ASSERT_NE(parameter, nullptr);
  uint8_t nothing = 0;
  ASSERT_OK(worker.client->Push(*parameter, 1, 0, &nothing, 0, Patience()));
  ASSERT_OK(server_.Collect("empty", 1, &nothing, 0, Patience()));
  ASSERT_OK(server_.Publish("empty", 1, &nothing, 0));
  ASSERT_OK(worker.client->Pull(*parameter, 1, &nothing, 0, Patience()));
}

TEST_P(StoreTest, OpenWaitsForServe) {
  Worker& worker = AddWorker();
  auto early = worker.client->Open(worker.server, "later", Deadline::After(0.1));
  EXPECT_EQ(early.status().code(), StatusCode::kDeadlineExceeded);
  std::thread opening([&] { EXPECT_NE(worker.Open("later"), nullptr); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_OK(server_.Serve(Spec("later", {2, 3}, 4)));
  opening.join();
  auto parameter = worker.Open("later");
  ASSERT_NE(parameter, nullptr);
  const ParameterInfo& info = ParameterClient::Info(*parameter);
  EXPECT_EQ(info.spec.name, "later");
  EXPECT_EQ(info.spec.shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(info.spec.contributors, 4u);
  EXPECT_EQ(info.bytes, 24u);
  EXPECT_EQ(info.version, 0u);
}

TEST_P(StoreTest, WhatIsWrongWithACallIsSaid) {
  ParameterServer detached;
  EXPECT_EQ(detached.Serve(Spec("w", {1})).code(), StatusCode::kFailedPrecondition);
  ASSERT_OK(server_.Serve(Spec("w", {4})));
  EXPECT_EQ(server_.Serve(Spec("w", {4})).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(server_.Serve(Spec("", {4})).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(server_.Serve(Spec("x", {~uint64_t{0}, 2})).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(server_.Serve(Spec("x", {4}, 0)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(server_.Serve(Spec("x", {4}, 1, DType::kFloat32, Consistency::kBsp, 63)).code(),
            StatusCode::kInvalidArgument);
  Floats four(4);
  EXPECT_EQ(server_.Collect("x", 1, four.data(), 16, Patience()).code(), StatusCode::kNotFound);
  EXPECT_EQ(server_.Collect("w", 1, four.data(), 12, Patience()).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(server_.Collect("w", 0, four.data(), 16, Patience()).code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(server_.Publish("w", 0, four.data(), 16).code(), StatusCode::kInvalidArgument);
  ASSERT_OK(server_.Publish("w", 3, four.data(), 16));
  EXPECT_EQ(server_.Publish("w", 3, four.data(), 16).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(server_.Info("w")->version, 3u);
  const Status missed = server_.Collect("w", 1, four.data(), 16, Deadline::After(0.01));
  EXPECT_EQ(missed.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(missed.message().find("contributor 0"), std::string::npos) << missed.message();
  Worker& worker = AddWorker();
  auto parameter = worker.Open("w");
  ASSERT_NE(parameter, nullptr);
  EXPECT_EQ(worker.client->Push(*parameter, 1, 0, four.data(), 12, Patience()).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(worker.client->WaitVersion(*parameter, 4, Deadline::After(0.01)).code(),
            StatusCode::kDeadlineExceeded);
}

TEST_P(StoreTest, PublishesInPlaceAndPullsIntoARegion) {
  Worker& worker = AddWorker();
  const uint64_t elements = 100000;
  ASSERT_OK(server_.Serve(Spec("w", {elements})));
  auto* values = reinterpret_cast<float*>(*server_.published("w"));
  std::iota(values, values + elements, 0.0f);
  const uint64_t copied = server_.counters().bytes_copied;
  ASSERT_OK(server_.Publish("w", 1, values, elements * 4));
  EXPECT_EQ(server_.counters().bytes_copied, copied);
  auto parameter = worker.Open("w");
  ASSERT_NE(parameter, nullptr);
  auto region = worker.engine->Allocate(elements * 4 + 64, Access::kLocal);
  ASSERT_TRUE(region.ok());
  uint64_t got = 0;
  ASSERT_OK(worker.client->Pull(*parameter, 1, (*region)->data() + 64, elements * 4, Patience(),
                                region->get(), &got));
  EXPECT_EQ(got, 1u);
  EXPECT_EQ(std::memcmp((*region)->data() + 64, values, elements * 4), 0);
  EXPECT_EQ(worker.client->counters().copies, 0u);
}

// Workers read the first blocks while others are still being published, and are told even when
// nobody takes their messages for a while.
TEST_P(StoreTest, LargeParameters) {
  AddWorker();
  AddWorker();
  const auto spec = Spec("large", {5 << 20}, 2);
  ASSERT_OK(server_.Serve(spec));
  RunRounds(&server_, &workers_, {spec}, 5);
}

TEST_P(StoreTest, AspReadersNeverSeeHalfABlock) {
  Worker& worker = AddWorker();
  const uint64_t elements = 5000;
  ASSERT_OK(server_.Serve(Spec("w", {elements}, 1, DType::kInt64, Consistency::kAsp)));
  auto parameter = worker.Open("w");
  ASSERT_NE(parameter, nullptr);
  const uint64_t per_block = ParameterClient::Info(*parameter).spec.block_bytes / 8;
  std::atomic<bool> stop{false};
  std::vector<int64_t> state(elements, 1);
  ASSERT_OK(server_.Publish("w", 1, state.data(), elements * 8));
  std::thread publishing([&] {
    for (int64_t version = 2; !stop; ++version) {
      state.assign(elements, version);
      EXPECT_TRUE(
          server_.Publish("w", static_cast<uint64_t>(version), state.data(), elements * 8).ok());
    }
  });
  std::vector<int64_t> seen(elements);
  auto region = worker.engine->Allocate(elements * 8, Access::kLocal);
  uint64_t last = 0;
  for (int round = 0; round < 500 && !HasFailure(); ++round) {
    const bool into_region = round % 2 == 1;
    int64_t* to = into_region ? reinterpret_cast<int64_t*>((*region)->data()) : seen.data();
    uint64_t got = 0;
    Status pulled = worker.client->Pull(*parameter, 1, to, elements * 8, Patience(),
                                        into_region ? region->get() : nullptr, &got);
    EXPECT_TRUE(pulled.ok()) << pulled.message();
    EXPECT_GE(got, last);
    last = got;
    for (uint64_t e = 0; e < elements && !HasFailure(); ++e) {
      EXPECT_GE(to[e], static_cast<int64_t>(got));
      EXPECT_EQ(to[e], to[e - e % per_block]);
    }
  }
  stop = true;
  publishing.join();
}

TEST_P(StoreTest, AspCollectsWhateverCame) {
  for (int w = 0; w < 3; ++w) AddWorker();
  const uint64_t elements = 3000;
  ASSERT_OK(server_.Serve(Spec("w", {elements}, 1, DType::kInt64, Consistency::kAsp)));
  std::vector<int64_t> sum(elements, -1);
  uint64_t contributions = 9;
  ASSERT_OK(server_.Collect("w", 7, sum.data(), elements * 8, Patience(), &contributions));
  EXPECT_EQ(contributions, 0u);
  EXPECT_EQ(sum, std::vector<int64_t>(elements, 0));
  constexpr int kPushes = 50;
  std::atomic<int> running{3};
  std::vector<std::thread> threads;
  for (uint32_t w = 0; w < 3; ++w) {
    threads.emplace_back([&, w] {
      auto parameter = workers_[w]->Open("w");
      ASSERT_NE(parameter, nullptr);
      const std::vector<int64_t> ones(elements, 1);
      for (int i = 0; i < kPushes; ++i) {
        ASSERT_OK(
            workers_[w]->client->Push(*parameter, 0, w, ones.data(), elements * 8, Patience()));
      }
      --running;
    });
  }
  std::vector<int64_t> total(elements, 0);
  const Deadline deadline = Patience();
  while (total.back() + total.front() < 2 * 3 * kPushes && !deadline.expired()) {
    ASSERT_OK(server_.Collect("w", 0, sum.data(), elements * 8, Patience(), &contributions));
    for (uint64_t e = 0; e < elements; ++e) {
      total[e] += sum[e];
      ASSERT_GE(sum[e], static_cast<int64_t>(contributions));
    }
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(running, 0);
  ASSERT_OK(server_.Collect("w", 0, sum.data(), elements * 8, Patience(), &contributions));
  for (uint64_t e = 0; e < elements; ++e) ASSERT_EQ(total[e] + sum[e], 3 * kPushes);
}

INSTANTIATE_TEST_SUITE_P(Transports, StoreTest, ::testing::ValuesIn(Subjects()),
                         [](const auto& info) { return ::testing::PrintToString(info.param); });

}  // namespace
}  // namespace rdmabatch::testing
