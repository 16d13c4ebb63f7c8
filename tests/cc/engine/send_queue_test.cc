#include "tf_rdmabatch/cc/engine/send_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "tf_rdmabatch/cc/engine/deadlines.h"

namespace rdmabatch {
namespace {

void Await(const std::atomic<bool>& flag) {
  const Deadline deadline = Deadline::After(60);
  while (!flag && !deadline.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(flag);
}

TEST(SendQueue, UrgentOnesFirstOtherwiseInOrder) {
  Executor executor;  // without threads: jobs run in Stop
  auto queue = std::make_shared<SendQueue>(&executor);
  std::string sent;
  const auto add = [&](int64_t priority, const char* name) {
    queue->Add(priority, [&sent, name](Deadline) {
      sent += name;
      return true;
    });
  };
  add(2, "a");
  add(1, "b");
  add(2, "c");
  add(0, "d");
  executor.Stop();
  EXPECT_EQ(sent, "dbac");
}

TEST(SendQueue, WhatWasNotSentIsTriedAgainUnlessSomethingIsMoreUrgent) {
  Executor executor;
  auto queue = std::make_shared<SendQueue>(&executor);
  std::string sent;
  int tries = 0;
  queue->Add(1, [&](Deadline) {
    sent += "a";
    if (++tries == 2) {
      queue->Add(0, [&](Deadline) {
        sent += "b";
        return true;
      });
    }
    return tries == 4;
  });
  executor.Stop();
  EXPECT_EQ(sent, "aabaa");
}

// A peer that takes nothing holds one thread, and that only in turns.
TEST(SendQueue, AStalledPeerHoldsUpNobody) {
  Executor executor;
  ASSERT_TRUE(executor.Start("test", 1).ok());
  auto stalled = std::make_shared<SendQueue>(&executor);
  auto other = std::make_shared<SendQueue>(&executor);
  std::atomic<bool> give_up{false};
  std::atomic<int> waiting{20};
  for (int i = 0; i < 20; ++i) {
    stalled->Add(i, [&](Deadline turn) {
      if (give_up) return --waiting, true;
      while (!turn.expired()) std::this_thread::sleep_for(std::chrono::microseconds(100));
      return false;
    });
  }
  std::atomic<bool> sent{false};
  other->Add(5, [&](Deadline) { return sent = true, true; });
  Await(sent);
  give_up = true;
  executor.Stop();
  EXPECT_EQ(waiting, 0);
}

TEST(Deadlines, EndWhatWaitsTooLong) {
  Timers timers;
  ASSERT_TRUE(timers.Start().ok());
  Deadlines deadlines(&timers);
  std::atomic<bool> ended{false};
  Status status;
  auto late = std::make_shared<Waiter>([&](const Status& s) {
    status = s;
    ended = true;
  });
  auto patient = std::make_shared<Waiter>([](const Status&) {});
  auto gone = std::make_shared<Waiter>([](const Status&) {});
  deadlines.Add(gone, Deadline::After(0), "gone");
  gone.reset();
  deadlines.Add(patient, Deadline::After(3600), "patience");
  deadlines.Add(late, Deadline::After(0.05), "pulling parameter \"w\"");
  Await(ended);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status.message(), "pulling parameter \"w\" missed its deadline");
  EXPECT_FALSE(patient->ended());
  timers.Stop();
  EXPECT_FALSE(patient->ended());
  deadlines.Add(patient, Deadline::After(0), "stopped");
  EXPECT_FALSE(patient->ended());
}

}  // namespace
}  // namespace rdmabatch
