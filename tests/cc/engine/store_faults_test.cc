// What peers may do wrong to the parameter store, and peers that end.
#include <thread>

#include "tests/cc/engine/store_harness.h"

namespace rdmabatch::testing {
namespace {

using StoreFaults = StoreTest;
using Floats = std::vector<float>;

// The refusal of what `push` sends, which may come before it has returned.
Status RefusalOf(Worker& worker, ParameterClient::Parameter& parameter, const Status& pushed) {
  return pushed.ok() ? worker.client->WaitVersion(parameter, 1000, Patience()) : pushed;
}

TEST_P(StoreFaults, APushToTheNextStepWaitsForItsTurn) {
  AddWorker();
  AddWorker();
  const uint64_t elements = 100000;  // more blocks than slots
  ASSERT_OK(server_.Serve(Spec("w", {elements}, 2)));
  auto a = workers_[0]->Open("w");
  auto b = workers_[1]->Open("w");
  ASSERT_TRUE(a != nullptr && b != nullptr);
  Floats values(elements, 1);
  const uint64_t bytes = elements * 4;
  ASSERT_OK(workers_[0]->client->Push(*a, 1, 0, values.data(), bytes, Patience()));
  for (uint64_t step = 1; step <= 20; ++step) {
    // The first worker is a step ahead, all the time.
    values.assign(elements, static_cast<float>(step + 1));
    ASSERT_OK(workers_[0]->client->Push(*a, step + 1, 0, values.data(), bytes, Patience()));
    values.assign(elements, 100);
    ASSERT_OK(workers_[1]->client->Push(*b, step, 1, values.data(), bytes, Patience()));
    Floats sum(elements);
    ASSERT_OK(server_.Collect("w", step, sum.data(), bytes, Patience()));
    EXPECT_EQ(sum, Floats(elements, static_cast<float>(100 + step)));
  }
  EXPECT_EQ(server_.counters().refused, 0u);
}

TEST_P(StoreFaults, DuplicatesAreRefused) {
  Worker& worker = AddWorker();
  ASSERT_OK(server_.Serve(Spec("w", {8}, 2)));
  auto parameter = worker.Open("w");
  ASSERT_NE(parameter, nullptr);
  const Floats values(8, 1);
  for (uint64_t step : {1, 2}) {
    ASSERT_OK(worker.client->Push(*parameter, step, 0, values.data(), 32, Patience()));
    const Status twice =
        RefusalOf(worker, *parameter,
                  worker.client->Push(*parameter, step, 0, values.data(), 32, Patience()));
    EXPECT_EQ(twice.code(), StatusCode::kAlreadyExists);
  }
  EXPECT_EQ(server_.counters().refused, 2u);
  for (uint64_t step : {1, 2}) {
    ASSERT_OK(worker.client->Push(*parameter, step, 1, values.data(), 32, Patience()));
    Floats sum(8);
    ASSERT_OK(server_.Collect("w", step, sum.data(), 32, Patience()));
    EXPECT_EQ(sum, Floats(8, 2));
  }
}

TEST_P(StoreFaults, WrongHeadersAreRefused) {
  Worker& worker = AddWorker();
  ASSERT_OK(server_.Serve(Spec("w", {2000}, 2)));  // id 0, two blocks
  ASSERT_OK(server_.Serve(Spec("unopened", {8})));
  auto parameter = worker.Open("w");
  ASSERT_NE(parameter, nullptr);
  const uint32_t block = ParameterClient::Info(*parameter).spec.block_bytes;
  const std::vector<std::pair<PushHeader, size_t>> bad = {
      {{1, 0, 1, 0, 32, 0}, 32},                   // not opened
      {{7, 0, 1, 0, 32, 0}, 32},                   // not served
      {{~uint32_t{0}, 0, 1, 0, 32, 0}, 32},        //
      {{0, 2, 1, 0, block, 0}, block},             // no such block
      {{0, ~uint32_t{0}, 1, 0, block, 0}, block},  //
      {{0, 0, 1, 0, block - 4, 0}, block - 4},     // of the wrong size
      {{0, 1, 1, 0, block, 0}, block},             //
      {{0, 0, 1, 2, block, 0}, block},             // no such contributor
      {{0, 0, 1, ~uint32_t{0}, block, 0}, block},  //
      {{0, 0, ~uint64_t{0}, 0, block, 0}, block},  // no such step
      {{0, 0, 0, 0, block, 0}, block},             //
  };
  uint64_t refused = 0;
  for (const auto& [header, bytes] : bad) {
    ASSERT_OK(worker.SendRaw(header, bytes));
    ASSERT_TRUE(Refused(++refused)) << refused;
  }
  EXPECT_FALSE(worker.server->closed());
  EXPECT_NE(worker.client->WaitVersion(*parameter, 1, Patience()).code(),
            StatusCode::kDeadlineExceeded);
}

TEST_P(StoreFaults, MessagesThatDoNotParseEndTheirConnection) {
  ASSERT_OK(server_.Serve(Spec("w", {8})));
  const PushHeader header{0, 0, 1, 0, 33, 0};
  const uint8_t few[] = {1, 2, 3};
  const std::vector<std::pair<MessageKind, Span<const uint8_t>>> bad = {
      {MessageKind::kPush, few},
      {MessageKind::kPush, {reinterpret_cast<const uint8_t*>(&header), sizeof(header)}},
      {MessageKind::kOpen, few},
      {MessageKind::kOpened, few},
      {static_cast<MessageKind>(200), few},
  };
  Worker& other = AddWorker();
  for (const auto& [kind, payload] : bad) {
    Worker& worker = AddWorker();
    ASSERT_OK(worker.server->Send({kind, 0, {}, payload}, Patience()));
    const Deadline deadline = Patience();
    while (!worker.server->closed() && !deadline.expired()) sched_yield();
    EXPECT_TRUE(worker.server->closed()) << static_cast<int>(kind);
  }
  EXPECT_NE(other.Open("w"), nullptr);
}

TEST_P(StoreFaults, AContributorThatEndsIsNamedAndReplaced) {
  AddWorker();
  AddWorker();
  const uint64_t elements = 5000;
  const uint64_t bytes = elements * 4;
  ASSERT_OK(server_.Serve(Spec("w", {elements}, 2)));
  const Floats ones(elements, 1);
  Floats sum(elements);
  auto a = workers_[0]->Open("w");
  auto b = workers_[1]->Open("w");
  ASSERT_TRUE(a != nullptr && b != nullptr);
  ASSERT_OK(workers_[0]->client->Push(*a, 1, 0, ones.data(), bytes, Patience()));
  ASSERT_OK(workers_[1]->client->Push(*b, 1, 1, ones.data(), bytes, Patience()));
  ASSERT_OK(server_.Collect("w", 1, sum.data(), bytes, Patience()));
  // The second ends in the middle of a push: its first block is in.
  ASSERT_OK(workers_[0]->client->Push(*a, 2, 0, ones.data(), bytes, Patience()));
  const uint32_t block = ParameterClient::Info(*b).spec.block_bytes;
  const PushHeader header{0, 0, 2, 1, block, 0};
  ASSERT_OK(workers_[1]->server->Send({MessageKind::kPush,
                                       0,
                                       {reinterpret_cast<const uint8_t*>(&header), sizeof(header)},
                                       {reinterpret_cast<const uint8_t*>(ones.data()), block}},
                                      Patience()));
  Status collected;
  std::thread collecting(
      [&] { collected = server_.Collect("w", 2, sum.data(), bytes, Patience()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  workers_[1]->engine->Shutdown();
  collecting.join();
  EXPECT_EQ(collected.code(), StatusCode::kUnavailable);
  EXPECT_NE(collected.message().find("worker:1"), std::string::npos) << collected.message();
  EXPECT_EQ(server_.Collect("w", 2, sum.data(), bytes, Patience()).code(),
            StatusCode::kUnavailable);
  // Calls of the ended worker say so too.
  EXPECT_FALSE(workers_[1]->client->WaitVersion(*b, 1, Patience()).ok());

  AddWorker();
  auto c = workers_[2]->Open("w");
  ASSERT_NE(c, nullptr);
  for (uint64_t step = 2; step <= 3; ++step) {
    ASSERT_OK(workers_[2]->client->Push(*c, step, 1, ones.data(), bytes, Patience()));
    if (step == 3) {
      ASSERT_OK(workers_[0]->client->Push(*a, step, 0, ones.data(), bytes, Patience()));
    }
    ASSERT_OK(server_.Collect("w", step, sum.data(), bytes, Patience()));
    EXPECT_EQ(sum, Floats(elements, 2));
  }
  EXPECT_EQ(server_.counters().refused, 0u);
}

TEST_P(StoreFaults, AWorkerThatEndsBeforeItContributedIsNamed) {
  Worker& worker = AddWorker();
  ASSERT_OK(server_.Serve(Spec("w", {8})));
  ASSERT_NE(worker.Open("w"), nullptr);
  Floats sum(8);
  Status collected;
  std::thread collecting([&] { collected = server_.Collect("w", 1, sum.data(), 32, Patience()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  worker.engine->Shutdown();
  collecting.join();
  EXPECT_EQ(collected.code(), StatusCode::kUnavailable);
  EXPECT_NE(collected.message().find("worker:0"), std::string::npos) << collected.message();
}

// What an ended worker left held goes with it.
TEST_P(StoreFaults, HeldPushesOfAnEndedWorkerAreDropped) {
  AddWorker();
  ASSERT_OK(server_.Serve(Spec("w", {5000})));
  auto a = workers_[0]->Open("w");
  ASSERT_NE(a, nullptr);
  const Floats ones(5000, 1);
  Floats sum(5000);
  ASSERT_OK(workers_[0]->client->Push(*a, 1, 0, ones.data(), 20000, Patience()));
  ASSERT_OK(workers_[0]->client->Push(*a, 2, 0, ones.data(), 20000, Patience()));
  workers_[0]->engine->Shutdown();
  const Deadline deadline = Patience();
  while (!engine_->connections().empty() && !deadline.expired()) sched_yield();
  AddWorker();
  auto b = workers_[1]->Open("w");
  ASSERT_NE(b, nullptr);
  ASSERT_OK(server_.Collect("w", 1, sum.data(), 20000, Patience()));
  ASSERT_OK(workers_[1]->client->Push(*b, 2, 0, ones.data(), 20000, Patience()));
  ASSERT_OK(server_.Collect("w", 2, sum.data(), 20000, Patience()));
  EXPECT_EQ(sum, ones);
}

TEST_P(StoreFaults, TheEndOfTheServerEndsWaits) {
  Worker& worker = AddWorker();
  ASSERT_OK(server_.Serve(Spec("w", {8})));
  auto parameter = worker.Open("w");
  ASSERT_NE(parameter, nullptr);
  Floats values(8);
  std::vector<std::thread> waits;
  waits.emplace_back([&] {
    const Status pulled = worker.client->Pull(*parameter, 1, values.data(), 32, Patience());
    EXPECT_EQ(pulled.code(), StatusCode::kUnavailable);
    EXPECT_NE(pulled.message().find("ps:0"), std::string::npos) << pulled.message();
  });
  waits.emplace_back([&] {
    EXPECT_EQ(worker.client->Open(worker.server, "never", Patience()).status().code(),
              StatusCode::kUnavailable);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  engine_->Shutdown();
  for (auto& wait : waits) wait.join();
}

TEST_P(StoreFaults, CancelEndsWaits) {
  Worker& worker = AddWorker();
  ASSERT_OK(server_.Serve(Spec("w", {8})));
  auto parameter = worker.Open("w");
  ASSERT_NE(parameter, nullptr);
  Floats values(8);
  std::vector<std::thread> waits;
  waits.emplace_back([&] {
    EXPECT_EQ(worker.client->WaitVersion(*parameter, 1, Patience()).code(), StatusCode::kCancelled);
  });
  waits.emplace_back([&] {
    EXPECT_EQ(worker.client->Open(worker.server, "never", Patience()).status().code(),
              StatusCode::kCancelled);
  });
  waits.emplace_back([&] {
    Floats sum(8);
    EXPECT_EQ(server_.Collect("w", 1, sum.data(), 32, Patience()).code(), StatusCode::kCancelled);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  worker.client->Cancel();
  server_.Cancel();
  for (auto& wait : waits) wait.join();
}

INSTANTIATE_TEST_SUITE_P(Transports, StoreFaults, ::testing::ValuesIn(Subjects()),
                         [](const auto& info) { return ::testing::PrintToString(info.param); });

}  // namespace
}  // namespace rdmabatch::testing
