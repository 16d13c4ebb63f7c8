// What rounds took, with a clock that the tests set.
#include "tf_rdmabatch/cc/engine/round_times.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "tf_rdmabatch/cc/base/time_waited.h"

namespace rdmabatch {
namespace {

int64_t clock_ns = 0;

class RoundTimesTest : public ::testing::Test {
 protected:
  RoundTimesTest() : times_([] { return clock_ns; }) { clock_ns = 1000; }

  // A round of a worker: pull for 10, compute for 100 a micro-step, push for 5.
  void Work(uint64_t version, uint64_t step, int64_t micro_steps = 2) {
    const auto pull = times_.Pull(version);
    clock_ns += 10;
    pull.Ends();
    for (int64_t i = 0; i < micro_steps; ++i) {
      clock_ns += 100;
      const auto push = times_.Push(step, i, micro_steps);
      if (i + 1 == micro_steps) clock_ns += 5;
      push.Ends();
    }
  }
  Round LastRound() { return times_.Last(1).at(0); }

  RoundTimes times_;
};

TEST_F(RoundTimesTest, NothingHappened) {
  EXPECT_TRUE(times_.Last(5).empty());
  EXPECT_EQ(times_.totals().rounds, 0);
  EXPECT_EQ(times_.totals().idle_ns, 0);
}

TEST_F(RoundTimesTest, AWorkersRound) {
  Work(7, 3);
  const Round round = LastRound();
  EXPECT_EQ(round.version, 7);
  EXPECT_EQ(round.step, 3);
  EXPECT_EQ(round.micro_steps, 2);
  EXPECT_EQ(round.pull_begin, 1000);
  EXPECT_EQ(round.pull_end, 1010);
  EXPECT_EQ(round.micro_step_end[0], 1110);
  EXPECT_EQ(round.micro_step_end[1], 1210);
  EXPECT_EQ(round.push_begin, 1210);
  EXPECT_EQ(round.compute_end, 1210);
  EXPECT_EQ(round.push_end, 1215);
  EXPECT_EQ(round.pull_wait + round.push_wait, 0);
  EXPECT_EQ(round.publish_begin + round.collect_end + round.update_end, 0);
}

TEST_F(RoundTimesTest, OneRoundByItsNumber) {
  Work(7, 3);
  Work(8, 8);
  EXPECT_EQ(times_.Of(8).step, 8);
  EXPECT_EQ(times_.Of(8).compute_end - times_.Of(8).pull_end, 200);
  EXPECT_EQ(times_.Of(7).version, 7);
  EXPECT_EQ(times_.Of(3).version, 7);
  EXPECT_EQ(times_.Of(9).pull_begin, 0);
  EXPECT_EQ(times_.Of(0).pull_begin, 0);
  for (int i = 0; i < 5; ++i) Work(20 + i, 20 + i);
  EXPECT_EQ(times_.Of(7).version, 0);
}

TEST_F(RoundTimesTest, TotalsOfManyRounds) {
  for (uint64_t i = 1; i <= 5; ++i) {
    Work(i, i);
    clock_ns += 30;
  }
  const RoundTotals totals = times_.totals();
  EXPECT_EQ(totals.rounds, 5);
  EXPECT_EQ(totals.micro_steps, 10);
  EXPECT_EQ(totals.pull_ns, 50);
  EXPECT_EQ(totals.compute_ns, 1000);
  EXPECT_EQ(totals.push_ns, 25);
  EXPECT_EQ(totals.wait_ns, 0);
  EXPECT_EQ(totals.idle_ns, 4 * 30);
}

TEST_F(RoundTimesTest, WaitingForVersionsIsNotPulling) {
  const auto first = times_.Pull(1);
  first.Blocks();
  clock_ns += 100;  // everything is blocked
  const auto second = times_.Pull(1);
  clock_ns += 10;  // the second one reads
  second.Blocks();
  clock_ns += 1000;
  first.Resumes();
  clock_ns += 10;
  first.Ends();
  clock_ns += 10000;
  second.Resumes();
  clock_ns += 10;
  second.Ends();
  EXPECT_EQ(LastRound().pull_wait, 11100);
  EXPECT_EQ(times_.totals().pull_ns, 30);
  EXPECT_EQ(times_.totals().wait_ns, 11100);
}

TEST_F(RoundTimesTest, WaitingForRoomCountsAfterTheLastValue) {
  const auto pull = times_.Pull(1);
  pull.Ends();
  const auto early = times_.Push(1, 0, 1);
  times_.WaitedForRoom(50);
  clock_ns += 100;  // computing went on
  const auto last = times_.Push(1, 0, 1);
  clock_ns += 40;
  times_.WaitedForRoom(30);
  early.Ends();
  last.Ends();
  const Round round = LastRound();
  EXPECT_EQ(round.push_begin, 1000);
  EXPECT_EQ(round.compute_end, 1100);
  EXPECT_EQ(round.push_wait, 30);
  const RoundTotals totals = times_.totals();
  EXPECT_EQ(totals.compute_ns, 100);
  EXPECT_EQ(totals.push_ns, 10);
  EXPECT_EQ(totals.wait_ns, 30);
}

TEST_F(RoundTimesTest, ConnectionsThatWaitAtTheSameTimeWaitOnce) {
  const auto push = times_.Push(1, 0, 1);
  clock_ns += 40;
  times_.WaitedForRoom(35);
  times_.WaitedForRoom(35);
  push.Ends();
  EXPECT_EQ(LastRound().push_wait, 40);
}

TEST_F(RoundTimesTest, AWorkerWithoutMicroSteps) {
  const auto pull = times_.Pull(1);
  clock_ns += 10;
  pull.Ends();
  const auto push = times_.Push(1, 0, 0);
  clock_ns += 5;
  push.Ends();
  const RoundTotals totals = times_.totals();
  EXPECT_EQ(totals.micro_steps, 0);
  EXPECT_EQ(totals.compute_ns, 0);
  EXPECT_EQ(totals.push_ns, 5);
}

// As a worker does when it tells that it no longer reads.
TEST_F(RoundTimesTest, NothingPushedAfterValuesChangesNothing) {
  Work(7, 7);
  clock_ns += 50;
  const auto nothing = times_.Push(7, 0, 0);
  clock_ns += 50;
  nothing.Ends();
  EXPECT_EQ(LastRound().micro_steps, 2);
  EXPECT_EQ(LastRound().push_end, 1215);
}

TEST_F(RoundTimesTest, NothingPushedBeforeThePull) {
  times_.Push(7, 0, 0).Ends();
  clock_ns += 50;
  times_.Pull(7).Ends();
  EXPECT_EQ(times_.totals().rounds, 1);
}

TEST_F(RoundTimesTest, MoreMicroStepsThanAreKept) {
  Work(1, 1, 40);
  const Round round = LastRound();
  EXPECT_EQ(round.micro_steps, 40);
  EXPECT_EQ(round.micro_step_end.back(), 1010 + 100 * static_cast<int64_t>(Round::kMicroSteps));
  EXPECT_EQ(round.compute_end, 1010 + 4000);
}

TEST_F(RoundTimesTest, AServersRound) {
  const auto publish = times_.Publish(4);
  clock_ns += 3;
  publish.Ends();
  const auto collect = times_.Collect(2);
  collect.Blocks();
  clock_ns += 200;
  collect.Resumes();
  clock_ns += 2;
  collect.Ends();
  clock_ns += 20;
  times_.Updated(2);
  const Round round = LastRound();
  EXPECT_EQ(round.version, 4);
  EXPECT_EQ(round.step, 2);
  const RoundTotals totals = times_.totals();
  EXPECT_EQ(totals.publish_ns, 3);
  EXPECT_EQ(totals.collect_ns, 2);
  EXPECT_EQ(totals.update_ns, 20);
  EXPECT_EQ(totals.wait_ns, 200);
}

// Several rounds in one function call: the next one begins as its inputs are there.
TEST_F(RoundTimesTest, AServersRoundsMayOverlap) {
  for (uint64_t i = 1; i <= 9; ++i) {
    const auto early = times_.Collect(i);
    early.Blocks();
    clock_ns += 10;
    if (i > 1) times_.Updated(i - 1);
    times_.Publish(20 + i).Ends();
    const auto late = times_.Collect(i);
    clock_ns += 100;
    early.Resumes();
    early.Ends();
    late.Ends();
  }
  const auto rounds = times_.Last(20);
  ASSERT_EQ(rounds.size(), 9u);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(rounds[i].version, static_cast<int64_t>(21 + i));
    EXPECT_EQ(rounds[i].step, static_cast<int64_t>(1 + i));
    EXPECT_EQ(rounds[i].collect_wait, 10);
    EXPECT_EQ(rounds[i].update_end - rounds[i].collect_end, 10);
  }
  EXPECT_EQ(rounds[8].update_end, 0);
  EXPECT_EQ(times_.totals().update_ns, 8 * 10);
  EXPECT_EQ(times_.totals().idle_ns, 0);
}

TEST_F(RoundTimesTest, AnUpdateOfNoOpenRoundIsIgnored) {
  times_.Updated(1);
  for (uint64_t i = 1; i <= 1 + RoundTimes::kOpen; ++i) Work(i, i);
  times_.Updated(1);
  times_.Updated(100);
  for (const Round& round : times_.Last(20)) EXPECT_EQ(round.update_end, 0);
  EXPECT_EQ(times_.totals().rounds, 1 + static_cast<int64_t>(RoundTimes::kOpen));
}

TEST_F(RoundTimesTest, ProgramsWithoutPullsOrPushes) {
  Work(1, 1);
  times_.Pull(2).Ends();  // an evaluation
  times_.Pull(3).Ends();
  Work(4, 2);
  times_.Push(9, 0, 1).Ends();
  const auto rounds = times_.Last(10);
  ASSERT_EQ(rounds.size(), 5u);
  EXPECT_EQ(rounds[1].step, 0);
  EXPECT_EQ(rounds[3].step, 2);
  EXPECT_EQ(rounds[4].version, 0);
  EXPECT_EQ(rounds[4].step, 9);
}

// A round that failed leaves operations behind.
TEST_F(RoundTimesTest, WhatEndsAfterItsRoundHasNoEffect) {
  const auto lost = times_.Pull(1);
  lost.Blocks();
  clock_ns += 1000;
  for (uint64_t i = 2; i <= 1 + RoundTimes::kOpen; ++i) Work(i, i);
  lost.Resumes();
  lost.Ends();
  const auto rounds = times_.Last(10);
  ASSERT_EQ(rounds.size(), 1 + RoundTimes::kOpen);
  EXPECT_EQ(rounds[0].pull_end, 0);
  EXPECT_EQ(rounds[1].pull_end, 2010);
  EXPECT_EQ(rounds[1].pull_wait, 0);
  EXPECT_EQ(times_.totals().pull_ns, 10 * static_cast<int64_t>(RoundTimes::kOpen));
}

TEST_F(RoundTimesTest, OldRoundsAreForgottenButCounted) {
  constexpr uint64_t kRounds = RoundTimes::kKept + 10;
  for (uint64_t i = 1; i <= kRounds; ++i) Work(i, i);
  const auto rounds = times_.Last(kRounds);
  ASSERT_EQ(rounds.size(), RoundTimes::kKept);
  EXPECT_EQ(rounds.front().version, 11);
  EXPECT_EQ(rounds.back().version, static_cast<int64_t>(kRounds));
  EXPECT_EQ(times_.totals().rounds, static_cast<int64_t>(kRounds));
  EXPECT_EQ(times_.totals().compute_ns, static_cast<int64_t>(kRounds) * 200);
}

TEST_F(RoundTimesTest, ThreadsAtTheSameTime) {
  RoundTimes times;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&times] {
      for (uint64_t round = 1; round <= 200; ++round) {
        const auto pull = times.Pull(round);
        pull.Blocks();
        pull.Resumes();
        pull.Ends();
        times.Push(round, 0, 1).Ends();
        times.WaitedForRoom(1);
        (void)times.totals();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(times.totals().rounds, 200);
  EXPECT_GE(times.totals().wait_ns, 0);
}

TEST(TimeWaitedTest, OnlyWhatBeganIsAWait) {
  const int64_t before = TimeWaited();
  { const ScopedWait none; }
  EXPECT_EQ(TimeWaited(), before);
  {
    ScopedWait wait;
    wait.Begin();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    wait.Begin();
  }
  EXPECT_GE(TimeWaited() - before, 2000000);
}

}  // namespace
}  // namespace rdmabatch
