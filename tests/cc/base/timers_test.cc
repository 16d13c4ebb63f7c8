#include "tf_rdmabatch/cc/base/timers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <vector>

namespace rdmabatch {
namespace {

// Whether all waiters were added before the first was to end; they are `unit` seconds apart.
bool EndsInOrder(double unit) {
  Timers timers;
  EXPECT_TRUE(timers.Start().ok());
  const Deadline deadlines[] = {Deadline::After(3 * unit), Deadline::After(unit),
                                Deadline::After(2 * unit)};
  std::vector<int64_t> order;
  std::promise<void> all;
  for (const Deadline& deadline : deadlines) {
    const int64_t at = deadline.at_ns();
    auto waiter = std::make_shared<Waiter>([&, at](const Status& status) {
      EXPECT_TRUE(status.ok());
      EXPECT_GE(NowNs(), at);
      order.push_back(at);
      if (order.size() == 3) all.set_value();
    });
    timers.Add(waiter, deadline);
  }
  const bool in_time = !deadlines[1].expired() && deadlines[2].at_ns() < deadlines[0].at_ns();
  all.get_future().wait();
  if (in_time) {
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  }
  return in_time;
}

TEST(Timers, EndsWaitersInTheOrderOfTheirTimes) {
  // A busy machine may hold up this thread until the first has ended.
  double unit = 0.02;
  while (!EndsInOrder(unit) && unit < 5) unit *= 4;
  EXPECT_LT(unit, 5);
}

TEST(Timers, EndsWhatWaitsWhenTheyStop) {
  Timers timers;
  ASSERT_TRUE(timers.Start().ok());
  StatusCode code = StatusCode::kOk;
  const auto keep = [&](const Status& status) { code = status.code(); };
  timers.Add(std::make_shared<Waiter>(keep), Deadline::After(3600));
  timers.Stop();
  EXPECT_EQ(code, StatusCode::kCancelled);
  code = StatusCode::kOk;
  timers.Add(std::make_shared<Waiter>(keep), Deadline::After(3600));
  EXPECT_EQ(code, StatusCode::kCancelled);
}

TEST(Timers, LeavesAloneWhatEndedBefore) {
  Timers timers;
  ASSERT_TRUE(timers.Start().ok());
  std::atomic<int> ends{0};
  auto waiter = std::make_shared<Waiter>([&](const Status&) { ++ends; });
  timers.Add(waiter, Deadline::After(0.02));
  waiter->End(Status::Ok());
  std::promise<void> later;
  auto last = std::make_shared<Waiter>([&](const Status&) { later.set_value(); });
  timers.Add(last, Deadline::After(0.03));
  later.get_future().wait();
  EXPECT_EQ(ends, 1);
}

}  // namespace
}  // namespace rdmabatch
