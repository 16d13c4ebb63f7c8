// The store's operations that do not wait: their waiters, sums that are handed over, contributions
// of nothing.
#include <chrono>
#include <future>
#include <numeric>
#include <thread>

#include "tests/cc/engine/store_harness.h"

namespace rdmabatch::testing {
namespace {

using Floats = std::vector<float>;

// A waiter, and what it ended with.
struct Pending {
  std::promise<Status> ended;
  std::future<Status> future = ended.get_future();
  std::shared_ptr<Waiter> waiter =
      std::make_shared<Waiter>([this](const Status& status) { ended.set_value(status); });

  bool over() const { return waiter->ended(); }
  Status Get() {
    if (future.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
      return {StatusCode::kInternal, "it did not end"};
    }
    return future.get();
  }
};

class StoreAsync : public StoreTest {
 protected:
  Status Push(uint32_t w, ParameterClient::Parameter& parameter, uint64_t step, float value) {
    const uint64_t bytes = ParameterClient::Info(parameter).bytes;
    const Floats values(bytes / sizeof(float), value);
    return workers_[w]->client->Push(parameter, step, w, values.data(), bytes, Patience());
  }
  Status PushNothing(uint32_t w, ParameterClient::Parameter& parameter, uint64_t step) {
    return workers_[w]->client->PushNothing(parameter, step, w, Patience());
  }
  // The value that every element of the sum has, or -1.
  float TakeSum(const std::string& name, uint64_t step) {
    auto sum = server_.TakeSum(name, step, Patience());
    EXPECT_TRUE(sum.ok()) << sum.status().message();
    if (!sum.ok()) return -1;
    const auto* values = reinterpret_cast<const float*>(sum->get());
    const uint64_t elements = server_.Info(name)->bytes / sizeof(float);
    return Floats(values, values + elements) == Floats(elements, values[0]) ? values[0] : -1;
  }
};

TEST_P(StoreAsync, AVersionEndsItsWaiters) {
  Worker& worker = AddWorker();
  ASSERT_OK(server_.Serve(Spec("w", {5000})));
  auto parameter = worker.Open("w");
  ASSERT_NE(parameter, nullptr);
  Pending first;
  Pending second;
  Pending given_up;
  worker.client->WhenVersion(*parameter, 1, first.waiter);
  worker.client->WhenVersion(*parameter, 2, second.waiter);
  worker.client->WhenVersion(*parameter, 1, given_up.waiter);
  EXPECT_FALSE(worker.client->HasVersion(*parameter, 1));
  given_up.waiter->End({StatusCode::kCancelled, "enough"});
  const Floats values(5000, 1);
  ASSERT_OK(server_.Publish("w", 1, values.data(), 20000));
  ASSERT_OK(first.Get());
  EXPECT_FALSE(second.over());
  EXPECT_EQ(given_up.Get().code(), StatusCode::kCancelled);
  EXPECT_TRUE(worker.client->HasVersion(*parameter, 1));
  ASSERT_OK(server_.Publish("w", 2, values.data(), 20000));
  ASSERT_OK(second.Get());
  Pending known;
  worker.client->WhenVersion(*parameter, 2, known.waiter);
  EXPECT_TRUE(known.over());
  ASSERT_OK(known.Get());
}

TEST_P(StoreAsync, OpensInParts) {
  Worker& worker = AddWorker();
  auto asked = worker.client->Ask(worker.server, "w", Patience());
  ASSERT_TRUE(asked.ok()) << asked.status().message();
  Pending answer;
  worker.client->WhenAnswered(**asked, answer.waiter);
  EXPECT_EQ(worker.client->Answered(**asked).code(), StatusCode::kFailedPrecondition);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(answer.over());
  ASSERT_OK(server_.Serve(Spec("w", {8})));
  ASSERT_OK(answer.Get());
  ASSERT_OK(worker.client->Answered(**asked));
  EXPECT_EQ(ParameterClient::Info(**asked).spec.shape, std::vector<uint64_t>{8});
  ASSERT_OK(Push(0, **asked, 1, 3));
  EXPECT_EQ(TakeSum("w", 1), 3);
}

TEST_P(StoreAsync, ACompleteStepEndsItsWaiter) {
  AddWorker();
  AddWorker();
  ASSERT_OK(server_.Serve(Spec("w", {5000}, 2)));
  auto a = workers_[0]->Open("w");
  auto b = workers_[1]->Open("w");
  ASSERT_TRUE(a != nullptr && b != nullptr);
  for (uint64_t step = 1; step <= 50; ++step) {
    Pending complete;
    EXPECT_FALSE(server_.IsComplete("w", step));
    server_.WhenComplete("w", step, complete.waiter);
    ASSERT_OK(Push(0, *a, step, 1));
    if (step % 10 == 0) {
      // A part of a later step does not count.
      ASSERT_OK(Push(0, *a, step + 1, 1));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_FALSE(complete.over());
    ASSERT_OK(Push(1, *b, step, static_cast<float>(step)));
    ASSERT_OK(complete.Get());
    EXPECT_TRUE(server_.IsComplete("w", step));
    EXPECT_EQ(TakeSum("w", step), static_cast<float>(step + 1));
    if (step % 10 == 0) {
      ++step;
      ASSERT_OK(Push(1, *b, step, 2));
      EXPECT_EQ(TakeSum("w", step), 3);
    }
  }
  EXPECT_EQ(server_.counters().refused, 0u);
}

TEST_P(StoreAsync, WrongStepsAndNamesEndWaitersAtOnce) {
  ASSERT_OK(server_.Serve(Spec("w", {8})));
  Pending ahead;
  server_.WhenComplete("w", 2, ahead.waiter);
  EXPECT_FALSE(ahead.over());
  Pending behind;
  server_.WhenComplete("w", 1, behind.waiter);
  EXPECT_TRUE(behind.over());
  EXPECT_EQ(behind.Get().message(), "parameter \"w\" awaits step 2, not 1");
  Pending unknown;
  server_.WhenComplete("x", 1, unknown.waiter);
  EXPECT_EQ(unknown.Get().code(), StatusCode::kNotFound);
  EXPECT_TRUE(server_.IsComplete("x", 1));
  EXPECT_EQ(server_.TakeSum("x", 1, Patience()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(server_.TakeSum("w", 2, Deadline::After(0)).status().code(),
            StatusCode::kDeadlineExceeded);
}

TEST_P(StoreAsync, ALostWorkerEndsWaiters) {
  AddWorker();
  AddWorker();
  ASSERT_OK(server_.Serve(Spec("w", {5000}, 2)));
  auto a = workers_[0]->Open("w");
  auto b = workers_[1]->Open("w");
  ASSERT_TRUE(a != nullptr && b != nullptr);
  ASSERT_OK(Push(0, *a, 1, 1));
  ASSERT_OK(Push(1, *b, 1, 1));
  EXPECT_EQ(TakeSum("w", 1), 2);
  Pending complete;
  server_.WhenComplete("w", 2, complete.waiter);
  ASSERT_OK(Push(0, *a, 2, 1));
  workers_[1]->engine->Shutdown();
  const Status lost = complete.Get();
  EXPECT_EQ(lost.code(), StatusCode::kUnavailable);
  EXPECT_NE(lost.message().find("worker:1"), std::string::npos) << lost.message();
  // Whoever asks later is told as well, until somebody takes the worker's place.
  Pending later;
  server_.WhenComplete("w", 2, later.waiter);
  EXPECT_EQ(later.Get().code(), StatusCode::kUnavailable);
}

TEST_P(StoreAsync, ALostServerEndsWaiters) {
  Worker& worker = AddWorker();
  ASSERT_OK(server_.Serve(Spec("w", {8})));
  auto parameter = worker.Open("w");
  ASSERT_NE(parameter, nullptr);
  auto asked = worker.client->Ask(worker.server, "never", Patience());
  ASSERT_TRUE(asked.ok());
  Pending version;
  Pending answer;
  worker.client->WhenVersion(*parameter, 1, version.waiter);
  worker.client->WhenAnswered(**asked, answer.waiter);
  engine_->Shutdown();
  for (Pending* pending : {&version, &answer}) {
    const Status lost = pending->Get();
    EXPECT_EQ(lost.code(), StatusCode::kUnavailable);
    EXPECT_NE(lost.message().find("ps:0"), std::string::npos) << lost.message();
  }
}

TEST_P(StoreAsync, CancelEndsWaiters) {
  Worker& worker = AddWorker();
  ASSERT_OK(server_.Serve(Spec("w", {8})));
  auto parameter = worker.Open("w");
  ASSERT_NE(parameter, nullptr);
  Pending version;
  Pending complete;
  worker.client->WhenVersion(*parameter, 1, version.waiter);
  server_.WhenComplete("w", 1, complete.waiter);
  worker.client->Cancel();
  server_.Cancel();
  EXPECT_EQ(version.Get().code(), StatusCode::kCancelled);
  EXPECT_EQ(complete.Get().code(), StatusCode::kCancelled);
  Pending late;
  worker.client->WhenVersion(*parameter, 1, late.waiter);
  EXPECT_EQ(late.Get().code(), StatusCode::kCancelled);
}

TEST_P(StoreAsync, ARefusalEndsAWaiter) {
  Worker& worker = AddWorker();
  ASSERT_OK(server_.Serve(Spec("w", {8}, 2)));
  auto parameter = worker.Open("w");
  ASSERT_NE(parameter, nullptr);
  Pending version;
  worker.client->WhenVersion(*parameter, 1, version.waiter);
  ASSERT_OK(Push(0, *parameter, 1, 1));
  ASSERT_OK(Push(0, *parameter, 1, 1));
  const Status refused = version.Get();
  EXPECT_EQ(refused.code(), StatusCode::kAlreadyExists);
  EXPECT_NE(refused.message().find("has contributed block 0 of step 1"), std::string::npos);
  // It was told; the parameter can be used as before.
  ASSERT_OK(worker.client->PushNothing(*parameter, 1, 1, Patience()));
  EXPECT_EQ(TakeSum("w", 1), 1);
}

TEST_P(StoreAsync, SumsAreHandedOver) {
  AddWorker();
  ASSERT_OK(server_.Serve(Spec("w", {5000})));
  auto parameter = workers_[0]->Open("w");
  ASSERT_NE(parameter, nullptr);
  std::vector<std::shared_ptr<uint8_t>> kept;
  for (uint64_t step = 1; step <= 5; ++step) {
    ASSERT_OK(Push(0, *parameter, step, static_cast<float>(step)));
    auto sum = server_.TakeSum("w", step, Patience());
    ASSERT_TRUE(sum.ok()) << sum.status().message();
    kept.push_back(std::move(*sum));
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<const float*>(kept[i].get())[4999], static_cast<float>(i + 1));
  }
  // What was let go is used again.
  const uint8_t* const memory = kept[0].get();
  kept.clear();
  std::vector<const uint8_t*> used;
  for (uint64_t step = 6; step <= 8; ++step) {
    ASSERT_OK(Push(0, *parameter, step, 1));
    auto sum = server_.TakeSum("w", step, Patience());
    ASSERT_TRUE(sum.ok());
    used.push_back(sum->get());
  }
  EXPECT_NE(std::find(used.begin(), used.end(), memory), used.end());
}

TEST_P(StoreAsync, NothingIsAContributionToo) {
  AddWorker();
  AddWorker();
  ASSERT_OK(server_.Serve(Spec("w", {5000}, 2)));
  auto a = workers_[0]->Open("w");
  auto b = workers_[1]->Open("w");
  ASSERT_TRUE(a != nullptr && b != nullptr);
  ASSERT_OK(Push(0, *a, 1, 5));
  ASSERT_OK(PushNothing(1, *b, 1));
  EXPECT_EQ(TakeSum("w", 1), 5);
  // Where there is nothing else, the sum is 0.
  ASSERT_OK(PushNothing(0, *a, 2));
  ASSERT_OK(PushNothing(1, *b, 2));
  EXPECT_EQ(TakeSum("w", 2), 0);
  // To the next step, first and last; the step before it is not complete yet.
  ASSERT_OK(PushNothing(0, *a, 3));
  ASSERT_OK(PushNothing(0, *a, 4));
  ASSERT_OK(Push(1, *b, 3, 7));
  EXPECT_EQ(TakeSum("w", 3), 7);
  ASSERT_OK(PushNothing(1, *b, 4));
  EXPECT_EQ(TakeSum("w", 4), 0);
  EXPECT_EQ(server_.counters().refused, 0u);
  // It is dropped like any other, block by block.
  ASSERT_OK(PushNothing(0, *a, 1));
  EXPECT_TRUE(Refused(ParameterClient::Info(*a).blocks));
}

TEST_P(StoreAsync, ANothingThatIsNoneIsRefused) {
  Worker& worker = AddWorker();
  ASSERT_OK(server_.Serve(Spec("w", {8})));
  ASSERT_NE(worker.Open("w"), nullptr);
  const PushHeader longer{0, 0, 1, 0, 32, kPushNothing};
  ASSERT_OK(worker.SendRaw(longer, 32));
  const PushHeader beyond{0, 1, 1, 0, 0, kPushNothing};
  ASSERT_OK(worker.SendRaw(beyond, 0));
  EXPECT_TRUE(Refused(2));
  EXPECT_FALSE(server_.IsComplete("w", 1));
}

INSTANTIATE_TEST_SUITE_P(Transports, StoreAsync, ::testing::ValuesIn(Subjects()), SubjectName);

}  // namespace
}  // namespace rdmabatch::testing
