#include "tf_rdmabatch/cc/base/timers.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace rdmabatch {
namespace {

TEST(Timers, EndsWaitersInTheOrderOfTheirTimes) {
  Timers timers;
  const int64_t begin = NowNs();
  std::vector<double> order;
  std::vector<int64_t> ends;
  std::promise<void> all;
  for (const double seconds : {0.06, 0.02, 0.04}) {
    auto waiter = std::make_shared<Waiter>([&, seconds](const Status& status) {
      EXPECT_TRUE(status.ok());
      order.push_back(seconds);
      ends.push_back(NowNs());
      if (order.size() == 3) all.set_value();
    });
    ASSERT_TRUE(timers.Add(waiter, Deadline::After(seconds)).ok());
  }
  all.get_future().wait();
  EXPECT_EQ(order, (std::vector<double>{0.02, 0.04, 0.06}));
  for (size_t i = 0; i < 3; ++i) EXPECT_GE(ends[i] - begin, static_cast<int64_t>(order[i] * 1e9));
}

TEST(Timers, EndsWhatWaitsWhenTheyStop) {
  Timers timers;
  StatusCode code = StatusCode::kOk;
  const auto keep = [&](const Status& status) { code = status.code(); };
  ASSERT_TRUE(timers.Add(std::make_shared<Waiter>(keep), Deadline::After(3600)).ok());
  timers.Stop();
  EXPECT_EQ(code, StatusCode::kCancelled);
  code = StatusCode::kOk;
  ASSERT_TRUE(timers.Add(std::make_shared<Waiter>(keep), Deadline::After(3600)).ok());
  EXPECT_EQ(code, StatusCode::kCancelled);
}

TEST(Timers, LeavesAloneWhatEndedBefore) {
  Timers timers;
  std::atomic<int> ends{0};
  auto waiter = std::make_shared<Waiter>([&](const Status&) { ++ends; });
  ASSERT_TRUE(timers.Add(waiter, Deadline::After(0.02)).ok());
  waiter->End(Status::Ok());
  std::promise<void> later;
  auto last = std::make_shared<Waiter>([&](const Status&) { later.set_value(); });
  ASSERT_TRUE(timers.Add(last, Deadline::After(0.03)).ok());
  later.get_future().wait();
  EXPECT_EQ(ends, 1);
}

}  // namespace
}  // namespace rdmabatch
