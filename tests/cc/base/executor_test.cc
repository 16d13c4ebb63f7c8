#include "tf_rdmabatch/cc/base/executor.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/pool.h"

namespace rdmabatch {
namespace {

TEST(Executor, RunsJobsOnItsThreads) {
  Executor executor;
  ASSERT_TRUE(executor.Start("test", 2).ok());
  std::atomic<int> ran{0};
  std::atomic<int> here{0};
  const auto self = std::this_thread::get_id();
  for (int i = 0; i < 1000; ++i) {
    executor.Post([&] {
      here += std::this_thread::get_id() == self ? 1 : 0;
      ++ran;
    });
  }
  const Deadline deadline = Deadline::After(60);
  while (ran < 1000 && !deadline.expired()) sched_yield();
  EXPECT_EQ(ran, 1000);
  EXPECT_EQ(here, 0);
}

TEST(Executor, StopRunsWhatWasPostedAndLaterJobsRunAtOnce) {
  Executor executor;
  ASSERT_TRUE(executor.Start("test", 1).ok());
  int ran = 0;
  executor.Post([] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
  // A job may post another one, also while the executor stops.
  for (int i = 0; i < 10; ++i) {
    executor.Post([&] { executor.Post([&] { ++ran; }); });
  }
  executor.Stop();
  EXPECT_EQ(ran, 10);
  executor.Post([&] { ++ran; });
  EXPECT_EQ(ran, 11);
}

TEST(Executor, WithoutThreadsWhatWasPostedRunsInStop) {
  Executor executor;
  int ran = 0;
  executor.Post([&] { ++ran; });
  EXPECT_EQ(ran, 0);
  executor.Stop();
  EXPECT_EQ(ran, 1);
}

TEST(Pool, ObjectsAreUsedAgain) {
  int made = 0;
  auto pool = Pool<int>::Create(1, [&] { return std::make_unique<int>(made++); });
  auto a = pool->Take();
  auto b = pool->Take();
  EXPECT_EQ(made, 2);
  const int* const first = a.get();
  a.reset();
  EXPECT_EQ(pool->Take().get(), first);
  // One is kept, the other is not.
  a = pool->Take();
  a.reset();
  b.reset();
  a = pool->Take();
  b = pool->Take();
  EXPECT_EQ(made, 3);
  // What was taken may outlive whoever made the pool.
  std::weak_ptr<Pool<int>> gone = pool;
  pool.reset();
  EXPECT_FALSE(gone.expired());
  a.reset();
  b.reset();
  EXPECT_TRUE(gone.expired());
}

TEST(Pool, SaysWhenThereIsNone) {
  auto pool = Pool<int>::Create(1, [] { return std::unique_ptr<int>(); });
  EXPECT_EQ(pool->Take(), nullptr);
}

}  // namespace
}  // namespace rdmabatch
