// Tasks: a server and workers, with as few threads as there may be.
#include "tf_rdmabatch/cc/engine/task.h"

#include <condition_variable>
#include <thread>

#include "tests/cc/engine/store_harness.h"

namespace rdmabatch::testing {
namespace {

using Floats = std::vector<float>;

constexpr uint64_t kViewElements = 40000;

// Counts waiters that ended, and keeps the first error.
class Tally {
 public:
  std::shared_ptr<Waiter> Waiting() {
    return std::make_shared<Waiter>([this](const Status& status) {
      std::lock_guard<std::mutex> lock(mutex_);
      ++ended_;
      if (error_.ok()) error_ = status;
      changed_.notify_all();
    });
  }
  // The first error of `count`.
  Status Await(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(60), [&] { return ended_ >= count; })) {
      return {StatusCode::kInternal, "only " + std::to_string(ended_) + " have ended"};
    }
    return error_;
  }
  int ended() {
    std::lock_guard<std::mutex> lock(mutex_);
    return ended_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int ended_ = 0;
  Status error_;
};

class TaskTest : public TransportTest {
 protected:
  void SetUp() override {
    TransportTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    server_ = Make("ps:0");
    ASSERT_NE(server_, nullptr);
    worker_ = Join("worker:0");
    ASSERT_NE(worker_, nullptr);
  }
  void TearDown() override {
    for (auto& task : tasks_) task->Stop();
  }

  std::shared_ptr<Task> Make(const std::string& name) {
    TaskOptions options;
    options.engine.token = "a token of the test";
    options.engine.name = name;
    options.engine.transport = GetParam().transport;
    options.engine.slot_bytes = 4096;
    options.listen = LocalIp(GetParam().transport) + ":0";
    options.threads = 1;
    auto task = Task::Create(options);
    EXPECT_TRUE(task.ok()) << task.status().message();
    if (!task.ok()) return nullptr;
    tasks_.push_back(*task);
    return *task;
  }
  // A task that is connected to the server.
  std::shared_ptr<Task> Join(const std::string& name) {
    auto task = Make(name);
    const Waiter until([](const Status&) {});
    if (task != nullptr) {
      const Status connected = task->Connect("ps:0", server_->address(), Patience(), until);
      EXPECT_TRUE(connected.ok()) << connected.message();
    }
    return task;
  }
  std::shared_ptr<RemoteParameter> Remote(const std::string& name, uint64_t elements) {
    auto remote = worker_->Remote("ps:0", Spec(name, {elements}));
    EXPECT_TRUE(remote.ok()) << remote.status().message();
    return *remote;
  }
  Status Publish(const std::string& name, uint64_t version, uint64_t elements) {
    const Floats values(elements, static_cast<float>(version));
    return server_->server().Publish(name, version, values.data(), elements * sizeof(float));
  }

  std::vector<std::shared_ptr<Task>> tasks_;
  std::shared_ptr<Task> server_;
  std::shared_ptr<Task> worker_;
};

// A thread for each wait would need 4000 of them.
TEST_P(TaskTest, ThousandsOfWaitsNeedOneThread) {
  constexpr int kParameters = 2000;
  Tally pulled;
  Tally pushed;
  Tally collected;
  const Floats gradient(4, 1);
  std::vector<std::shared_ptr<RemoteParameter>> remotes;
  for (int i = 0; i < kParameters; ++i) {
    remotes.push_back(Remote("w" + std::to_string(i), 4));
    worker_->WhenVersion(remotes.back(), 1, pulled.Waiting());
    worker_->Push(remotes.back(), {1, 0, gradient.data(), 16, nullptr}, i, pushed.Waiting());
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(pulled.ended() + pushed.ended(), 0);
  for (int i = kParameters - 1; i >= 0; --i) {
    ASSERT_OK(server_->server().Serve(Spec("w" + std::to_string(i), {4})));
    server_->server().WhenComplete("w" + std::to_string(i), 1, collected.Waiting());
  }
  ASSERT_OK(pushed.Await(kParameters));
  ASSERT_OK(collected.Await(kParameters));
  EXPECT_EQ(pulled.ended(), 0);
  for (int i = kParameters - 1; i >= 0; --i) ASSERT_OK(Publish("w" + std::to_string(i), 1, 4));
  ASSERT_OK(pulled.Await(kParameters));
  for (const auto& remote : remotes) {
    ASSERT_TRUE(worker_->HasVersion(*remote, 1));
    auto value = worker_->Pull(*remote, 1, Patience());
    ASSERT_TRUE(value.ok()) << value.status().message();
    EXPECT_EQ(static_cast<const float*>(value->data)[3], 1);
  }
}

TEST_P(TaskTest, PushesWaitForRoom) {
  constexpr uint64_t kElements = 200000;  // several times the slots
  ASSERT_OK(server_->server().Serve(Spec("w", {kElements})));
  auto remote = Remote("w", kElements);
  for (uint64_t step = 1; step <= 5; ++step) {
    auto owner = std::make_shared<Floats>(kElements, static_cast<float>(step));
    Tally pushed;
    const Contribution whole{step, 0, owner->data(), kElements * sizeof(float), owner};
    if (worker_->TryPush(*remote, whole).code() == StatusCode::kDeadlineExceeded) {
      worker_->Push(remote, whole, 0, pushed.Waiting());
      ASSERT_OK(pushed.Await(1));
    }
    auto sum = server_->server().TakeSum("w", step, Patience());
    ASSERT_TRUE(sum.ok()) << sum.status().message();
    const auto* values = reinterpret_cast<const float*>(sum->get());
    EXPECT_EQ(Floats(values, values + kElements), *owner);
  }
  EXPECT_EQ(server_->counters().refused, 0u);
}

TEST_P(TaskTest, WhatIsStillInUseBecomesACopy) {
  ParameterSpec spec = Spec("w", {kViewElements});
  spec.versions = 2;
  ASSERT_OK(server_->server().Serve(spec));
  auto remote = Remote("w", kViewElements);
  const auto pull = [&](uint64_t version) -> Pulled {
    Tally there;
    worker_->WhenVersion(remote, version, there.Waiting());
    EXPECT_TRUE(there.Await(1).ok());
    auto pulled = worker_->PullView(*remote, version, Patience());
    EXPECT_TRUE(pulled.ok()) << pulled.status().message();
    return pulled.ok() ? *pulled : Pulled();
  };
  const auto value = [](const Pulled& pulled) {
    const auto* values = static_cast<const float*>(pulled.data);
    EXPECT_EQ(Floats(values, values + kViewElements), Floats(kViewElements, values[0]));
    return values[0];
  };
  ASSERT_OK(Publish("w", 1, kViewElements));
  const Pulled kept = pull(1);
  const bool direct = ParameterClient::IsDirect(*remote->opened());
  EXPECT_EQ(kept.exclusive, !direct);
  EXPECT_EQ(pull(1).data == kept.data, direct);
  for (uint64_t version = 2; version <= 6; ++version) {
    ASSERT_OK(Publish("w", version, kViewElements));
    EXPECT_EQ(value(pull(version)), static_cast<float>(version));
    EXPECT_EQ(value(kept), 1);
  }
  // What nobody uses any more is mapped once for each of the two.
  if (direct) {
    const CounterValues counters = worker_->counters();
    EXPECT_GE(counters.bytes_copied, kViewElements * sizeof(float));
    EXPECT_LT(counters.bytes_copied, 2 * kViewElements * sizeof(float));
    EXPECT_EQ(pull(6).data, pull(6).data);
  }
  EXPECT_EQ(worker_->counters().views, direct ? 9u : 0u);
  // It may outlive the task.
  worker_->Stop();
  server_->Stop();
  EXPECT_EQ(value(kept), 1);
}

TEST_P(TaskTest, MemoryOfPullsIsUsedAgain) {
  ASSERT_OK(server_->server().Serve(Spec("w", {kViewElements})));
  auto remote = Remote("w", kViewElements);
  ASSERT_OK(Publish("w", 1, kViewElements));
  Tally there;
  worker_->WhenVersion(remote, 1, there.Waiting());
  ASSERT_OK(there.Await(1));
  auto first = worker_->Pull(*remote, 1, Patience());
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_TRUE(first->exclusive);
  void* const data = first->data;
  auto second = worker_->Pull(*remote, 1, Patience());
  ASSERT_TRUE(second.ok());
  EXPECT_NE(second->data, data);
  *first = Pulled();
  auto third = worker_->Pull(*remote, 1, Patience());
  ASSERT_TRUE(third.ok());
  EXPECT_EQ(third->data, data);
  EXPECT_EQ(static_cast<const float*>(data)[kViewElements - 1], 1);
}

TEST_P(TaskTest, MistakesAreNamed) {
  EXPECT_NE(
      worker_->Remote("ps:7", Spec("w", {4})).status().message().find("no connection to ps:7"),
      std::string::npos);
  auto remote = Remote("w", 4);
  EXPECT_EQ(worker_->Remote("ps:0", Spec("w", {5})).status().message(),
            "parameter \"w\" is float32 [4], not float32 [5]");
  ASSERT_OK(server_->server().Serve(Spec("w", {2, 2}, 1, DType::kInt32)));
  Tally there;
  worker_->WhenVersion(remote, 1, there.Waiting());
  const Status other = there.Await(1);
  EXPECT_EQ(other.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(other.message(), "parameter \"w\" is int32 [2,2], not float32 [4]");
  Tally again;
  worker_->Push(remote, {1, 0, nullptr, 0, nullptr}, 0, again.Waiting());
  EXPECT_EQ(again.Await(1).code(), StatusCode::kInvalidArgument);
  const Waiter given_up([](const Status&) {});
  EXPECT_EQ(worker_->Connect("ps:0", "127.0.0.1:1", Deadline::After(0), given_up).code(),
            StatusCode::kOk);  // it is connected already
  const Status nobody = worker_->Connect("ps:1", "127.0.0.1:1", Deadline::After(0.1), given_up);
  EXPECT_EQ(nobody.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(nobody.message().find("ps:1 at 127.0.0.1:1"), std::string::npos) << nobody.message();
}

TEST_P(TaskTest, StopEndsEveryWait) {
  ASSERT_OK(server_->server().Serve(Spec("w", {200000})));
  auto remote = Remote("w", 200000);
  Tally waits;
  worker_->WhenVersion(remote, 1, waits.Waiting());
  worker_->WhenVersion(Remote("never", 4), 1, waits.Waiting());
  server_->server().WhenComplete("w", 1, waits.Waiting());
  auto late = waits.Waiting();
  worker_->Expire(late, Deadline::After(0.01), "waiting");
  worker_->Stop();
  server_->Stop();
  late->End({StatusCode::kCancelled, "stopped"});
  EXPECT_FALSE(waits.Await(4).ok());
  Tally after;
  worker_->WhenVersion(remote, 1, after.Waiting());
  worker_->Push(remote, {1, 0, nullptr, 0, nullptr}, 0, after.Waiting());
  EXPECT_FALSE(after.Await(2).ok());
}

TEST_P(TaskTest, ALostServerIsNamed) {
  ASSERT_OK(server_->server().Serve(Spec("w", {4})));
  auto remote = Remote("w", 4);
  Tally waits;
  worker_->WhenVersion(remote, 1, waits.Waiting());
  worker_->WhenVersion(Remote("never", 4), 1, waits.Waiting());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  server_->Stop();
  const Status lost = waits.Await(2);
  EXPECT_EQ(lost.code(), StatusCode::kUnavailable);
  EXPECT_NE(lost.message().find("ps:0"), std::string::npos) << lost.message();
  Tally later;
  worker_->Push(remote, {1, 0, nullptr, 0, nullptr}, 0, later.Waiting());
  EXPECT_EQ(later.Await(1).code(), StatusCode::kUnavailable);
}

TEST_P(TaskTest, AProcessHasOneCurrentTask) {
  EXPECT_EQ(Task::Current(), nullptr);
  TaskOptions options;
  EXPECT_EQ(Task::Start(options).status().code(), StatusCode::kInvalidArgument);  // no token
  options.engine.token = "t";
  options.engine.transport = GetParam().transport;
  options.listen = LocalIp(GetParam().transport) + ":0";
  auto first = Task::Start(options);
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_EQ(Task::Current(), *first);
  Tally waits;
  ASSERT_OK((*first)->server().Serve(Spec("w", {4})));
  (*first)->server().WhenComplete("w", 1, waits.Waiting());
  auto second = Task::Start(options);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(Task::Current(), *second);
  EXPECT_EQ(waits.Await(1).code(), StatusCode::kCancelled);
  Task::StopCurrent();
  EXPECT_EQ(Task::Current(), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Transports, TaskTest, ::testing::ValuesIn(Subjects()), SubjectName);

}  // namespace
}  // namespace rdmabatch::testing
