// The gate on its own, for the thread and address sanitizers (which do not run in the testbed).
#include "tf_rdmabatch/cc/transport/poll_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

namespace rdmabatch {
namespace {

TEST(PollGate, NothingIsFreedWhileAPollUsesIt) {
  struct Endpoint {
    uint64_t polls = 0;
  };
  PollGate gate;
  std::atomic<Endpoint*> place{nullptr};
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> uses{0};
  std::thread progress([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      {
        const PollGate::Inside inside(&gate);
        Endpoint* endpoint = place.load(std::memory_order_seq_cst);
        if (endpoint != nullptr) {
          ++endpoint->polls;
          uses.fetch_add(1, std::memory_order_relaxed);
        }
      }
      if (uses.load(std::memory_order_relaxed) % 4 == 0) std::this_thread::yield();
    }
  });
  uint64_t counted = 0;
  for (int round = 0; round < 2000; ++round) {
    auto endpoint = std::make_unique<Endpoint>();
    const uint64_t before = uses.load(std::memory_order_relaxed);
    place.store(endpoint.get(), std::memory_order_seq_cst);
    while (uses.load(std::memory_order_relaxed) == before) std::this_thread::yield();
    place.store(nullptr, std::memory_order_seq_cst);
    gate.AwaitOutside();
    counted += endpoint->polls;
  }
  stop = true;
  progress.join();
  EXPECT_EQ(counted, uses.load());
}

TEST(PollGate, DoesNotWaitWhenNobodyPolls) {
  PollGate gate;
  gate.AwaitOutside();
  { const PollGate::Inside inside(&gate); }
  gate.AwaitOutside();
}

}  // namespace
}  // namespace rdmabatch
