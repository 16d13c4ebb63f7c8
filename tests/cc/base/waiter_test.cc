#include "tf_rdmabatch/cc/base/waiter.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace rdmabatch {
namespace {

const Status kLate(StatusCode::kDeadlineExceeded, "late");

TEST(Waiter, EndsOnceByWhoeverIsFirst) {
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> ends{0};
    Waiter waiter([&](const Status&) { ++ends; });
    std::vector<std::thread> threads;
    std::atomic<int> firsts{0};
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] { firsts += waiter.End(Status::Ok()) ? 1 : 0; });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_TRUE(waiter.ended());
    EXPECT_EQ(ends, 1);
    EXPECT_EQ(firsts, 1);
  }
}

TEST(Waiter, LetsGoOfWhatItHeldOnceItEnded) {
  auto held = std::make_shared<int>(1);
  auto waiter = std::make_shared<Waiter>([held](const Status&) {});
  EXPECT_EQ(held.use_count(), 2);
  waiter->End(kLate);
  EXPECT_EQ(held.use_count(), 1);
}

TEST(WaitList, TakesWhatIsReached) {
  WaitList list;
  std::string ended;
  const auto add = [&](uint64_t target, const std::string& name) {
    auto waiter = std::make_shared<Waiter>([&, name](const Status&) { ended += name; });
    list.Add(target, waiter);
    return waiter;
  };
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.next(), ~uint64_t{0});
  add(3, "c");
  add(1, "a");
  auto cancelled = add(2, "b");
  EXPECT_EQ(list.next(), 1u);
  EndAll(list.Take(0), Status::Ok());
  EXPECT_EQ(ended, "");
  EndAll(list.Take(1), Status::Ok());
  EXPECT_EQ(ended, "a");
  cancelled->End(kLate);
  EXPECT_EQ(ended, "ab");
  add(5, "e");
  // The one that ended by itself has made room.
  EXPECT_EQ(list.next(), 3u);
  EndAll(list.Take(), kLate);
  EXPECT_EQ(ended, "abce");
  EXPECT_TRUE(list.empty());
}

}  // namespace
}  // namespace rdmabatch
