// What every transport must do when something is full, and when somebody sleeps.
#include <gtest/gtest.h>
#include <poll.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "tests/cc/transport/harness.h"

namespace rdmabatch::testing {
namespace {

using ConformanceFlow = TransportTest;

void Pause(int64_t ns) {
  const timespec time{0, ns};
  nanosleep(&time, nullptr);
}

// Mostly shorter than a system call, so that posts meet every step of falling asleep.
void ShortPause(std::mt19937* random) {
  if ((*random)() % 32 == 0) {
    Pause((*random)() % 50000);
  } else {
    for (auto spins = (*random)() % 200; spins > 0; --spins) CpuRelax();
  }
}

// Sleeps on the transport's event until `news` finds something, as a progress thread does. False:
// no event in time.
bool SleepUntil(Transport* transport, const std::function<bool()>& news) {
  for (const Deadline deadline = Patience(); !deadline.expired();) {
    transport->PrepareSleep();
    bool woken = news();
    const bool found = woken;
    if (!found) {
      pollfd entry{transport->event_fd(), POLLIN, 0};
      woken = poll(&entry, 1, deadline.RemainingMs(60000)) > 0;
    }
    transport->FinishSleep();
    if (!woken) return false;
    if (found || news()) return true;
  }
  return false;
}

TEST_P(ConformanceFlow, AFullSendQueueCutsTheChainAndResumes) {
  Pair pair;
  EndpointOptions options = Options(1);
  options.send_queue_depth = 16;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair, options, Options(2)));
  Endpoint* endpoint = pair.a.endpoint.get();
  EXPECT_EQ(endpoint->send_queue_free(), 16u);
  Fill(pair.a.staging.local.address, 40 * 128, 7);
  std::vector<WorkRequest> chain;
  for (uint32_t i = 0; i < 40; ++i) chain.push_back(pair.a.Write(i * 128, i * 128, 128, i));
  const size_t first = endpoint->Post(Chain(chain));
  ASSERT_EQ(first, 16u);
  EXPECT_EQ(endpoint->send_queue_free(), 0u);
  EXPECT_EQ(endpoint->Post(Chain(chain).subspan(first)), 0u);
  EXPECT_EQ(pair.a.counters->values().queue_stalls, 2u);
  EXPECT_EQ(pair.a.counters->values().doorbells, 1u);
  const auto sends = pair.a.TakeSends(1, Patience());
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_EQ(sends[0].id, 15u) << "the last that was accepted is signalled";
  EXPECT_EQ(endpoint->send_queue_free(), 16u);
  ASSERT_TRUE(pair.a.PostAll(Chain(chain).subspan(first), Patience()));
  ASSERT_TRUE(pair.a.PostAll(Chain({pair.a.WriteImm(0, 0, 0, 1)}), Patience()));
  ASSERT_EQ(pair.b.TakeArrivals(1, Patience()).size(), 1u);
  EXPECT_TRUE(Holds(pair.b.arena.local.address, 40 * 128, 7));
}

TEST_P(ConformanceFlow, AsManyImmediatesWaitAsAgreed) {
  for (uint32_t max_receives : {1u, 3u, 64u}) {
    Pair pair;
    EndpointOptions b = Options(2);
    b.max_receives = max_receives;
    EndpointOptions a = Options(1);
    a.max_receives = max_receives;
    ASSERT_NO_FATAL_FAILURE(Connect(&pair, a, b));
    for (uint32_t round = 0; round < 5; ++round) {
      for (uint32_t i = 0; i < max_receives; ++i) {
        ASSERT_EQ(pair.a.endpoint->Post(Chain({pair.a.WriteImm(0, 0, 8, i, i)})), 1u);
      }
      const auto arrivals = pair.b.TakeArrivals(max_receives, Patience());
      ASSERT_EQ(arrivals.size(), max_receives);
      for (uint32_t i = 0; i < max_receives; ++i) EXPECT_EQ(arrivals[i].immediate, i);
      ASSERT_EQ(pair.a.TakeSends(max_receives, Patience()).size(), max_receives);
    }
  }
}

// The sender respects the agreed number of immediates and otherwise posts as fast as it can; the
// receiver dawdles.
TEST_P(ConformanceFlow, BackpressureLosesNothing) {
  constexpr uint32_t kReceives = 16;
  const uint32_t messages = IsShm() ? 20000 : 3000;
  Pair pair;
  EndpointOptions a = Options(1);
  a.send_queue_depth = 32;
  EndpointOptions b = Options(2);
  b.max_receives = kReceives;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair, a, b));
  std::atomic<uint32_t> perceived{0};
  std::atomic<bool> sent{false};
  std::thread sender([&] {
    std::mt19937 random(1);
    for (uint32_t i = 0; i < messages;) {
      const uint32_t batch = std::min<uint32_t>(1 + random() % 4, messages - i);
      for (const Deadline deadline = Patience(); i + batch - perceived.load() > kReceives;) {
        if (deadline.expired()) return;
        std::this_thread::yield();
      }
      std::vector<WorkRequest> chain;
      for (uint32_t end = i + batch; i < end; ++i) chain.push_back(pair.a.WriteImm(0, 0, 8, i, i));
      if (!pair.a.PostAll(Chain(chain), Patience())) return;
    }
    sent = true;
  });
  std::mt19937 random(2);
  while (perceived < messages) {
    const auto arrivals = pair.b.TakeArrivals(1, Patience());
    if (arrivals.size() != 1 || !arrivals[0].ok || arrivals[0].immediate != perceived) break;
    ++perceived;
    if (random() % 64 == 0) Pause(random() % 100000);
  }
  sender.join();
  EXPECT_TRUE(sent);
  EXPECT_EQ(perceived, messages);
}

TEST_P(ConformanceFlow, NoArrivalIsSleptThrough) {
  const uint32_t rounds = IsShm() ? 50000 : 1000;
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  std::atomic<uint32_t> perceived{0};
  std::atomic<bool> stop{false};
  std::thread sender([&] {
    std::mt19937 random(3);
    for (uint32_t i = 0; i < rounds && !stop; ++i) {
      ShortPause(&random);
      // A payload in lines that the receiver has just written delays the store that announces it.
      const uint32_t payload = i % 2 == 0 ? 512 : 8;
      if (!pair.a.PostAll(Chain({pair.a.WriteImm(0, 0, payload, i, i)}), Patience())) return;
      while (perceived.load() <= i && !stop) std::this_thread::yield();
    }
  });
  Completion arrivals[4];
  for (uint32_t i = 0; i < rounds; ++i) {
    size_t count = 0;
    const bool woken = SleepUntil(pair.b.transport.get(), [&] {
      count = pair.b.transport->PollReceive(arrivals);
      return count != 0;
    });
    if (!woken || count != 1 || arrivals[0].immediate != i) break;
    std::fill_n(pair.b.arena.local.address, 512, static_cast<uint8_t>(i));
    ++perceived;
  }
  stop = true;
  sender.join();
  EXPECT_EQ(perceived, rounds);
  if (IsShm()) {
    EXPECT_LE(pair.a.counters->values().wakeups_sent, rounds) << "a sleep is ended once";
  }
}

TEST_P(ConformanceFlow, ManyPostsToASleepingPeerWakeIt) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  Completion arrivals[64];
  ASSERT_EQ(pair.b.transport->PollReceive(arrivals), 0u);
  const uint64_t before = pair.a.counters->values().wakeups_sent;
  pair.b.transport->PrepareSleep();
  ASSERT_EQ(pair.b.transport->PollReceive(arrivals), 0u);
  for (uint32_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(pair.a.PostAll(Chain({pair.a.WriteImm(0, 0, 8, i)}), Patience()));
  }
  pollfd entry{pair.b.transport->event_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 60000), 1);
  pair.b.transport->FinishSleep();
  EXPECT_EQ(pair.b.TakeArrivals(20, Patience()).size(), 20u);
  if (IsShm()) {
    EXPECT_EQ(pair.a.counters->values().wakeups_sent - before, 1u);
  }
}

TEST_P(ConformanceFlow, AnIdleTransportStaysAsleep) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  Completion arrivals[4];
  for (int i = 0; i < 3; ++i) {  // what connecting left behind is drained in the first rounds
    pair.b.transport->PrepareSleep();
    EXPECT_EQ(pair.b.transport->PollReceive(arrivals), 0u);
    pair.b.transport->FinishSleep();
  }
  pair.b.transport->PrepareSleep();
  EXPECT_EQ(pair.b.transport->PollReceive(arrivals), 0u);
  pollfd entry{pair.b.transport->event_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 200), 0);
  pair.b.transport->FinishSleep();
}

TEST_P(ConformanceFlow, NoWantedSendCompletionIsSleptThrough) {
  const uint32_t rounds = IsShm() ? 30000 : 500;
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  std::atomic<bool> stop{false};
  std::thread receiver([&] {
    std::mt19937 random(5);
    Completion arrivals[4];
    while (!stop) {
      ShortPause(&random);
      if (pair.b.transport->PollReceive(arrivals) == 0) std::this_thread::yield();
    }
  });
  uint32_t completed = 0;
  for (; completed < rounds; ++completed) {
    if (!pair.a.PostAll(Chain({pair.a.WriteImm(0, 0, 8, completed, completed)}), Patience())) break;
    Completion sends[4];
    Completion arrivals[4];
    size_t count = 0;
    const bool woken = SleepUntil(pair.a.transport.get(), [&] {
      pair.a.endpoint->WantSendEvents(true);
      pair.a.transport->PollReceive(arrivals);
      if (count == 0) count = pair.a.endpoint->PollSend(sends);
      return count != 0;
    });
    pair.a.endpoint->WantSendEvents(false);
    if (!woken || count != 1 || !sends[0].ok || sends[0].id != completed) break;
  }
  stop = true;
  receiver.join();
  EXPECT_EQ(completed, rounds);
}

INSTANTIATE_TEST_SUITE_P(Transports, ConformanceFlow, ::testing::ValuesIn(Subjects()), SubjectName);

}  // namespace
}  // namespace rdmabatch::testing
