// A lane's send side, entered by several threads at once.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/cc/engine/lane_harness.h"
#include "tf_rdmabatch/cc/engine/lane.h"

namespace rdmabatch::testing {
namespace {

// A releasing thread races with the progress thread and with sends in the other direction.
TEST(LaneThreads, ReleasesFromAnotherThreadLoseNothing) {
  for (const Confirm confirm : {Confirm::kBatch, Confirm::kEach}) {
    EngineOptions options = LaneOptions();
    options.confirm = confirm;
    options.slot_bytes = 256;
    auto pair = MakeLanes("shm", options, options);
    ASSERT_NE(pair, nullptr);
    SlotHold ring[4096];
    std::atomic<uint64_t> kept{0};
    std::atomic<bool> over{false};
    uint64_t sum = 0;
    pair->b.sink.on_message = [&](const MessageHeader& header, Span<const uint8_t>, SlotHold hold) {
      sum += header.tag;
      ring[kept.load() % 4096] = hold;
      kept.fetch_add(1);
      return Disposition::kHold;
    };
    constexpr uint64_t kMessages = 20000;
    std::thread releaser([&] {
      for (uint64_t i = 0; i < kMessages && !over;) {
        if (i == kept.load()) {
          std::this_thread::yield();
        } else {
          EXPECT_TRUE(pair->b.lane->Release(ring[i++ % 4096].slot));
        }
      }
    });
    uint64_t sent = 0;
    for (const Deadline deadline = Deadline::After(60); kept < kMessages && !deadline.expired();) {
      const bool more = (sent + 1) % 7 != 0 && sent + 1 < kMessages;
      if (sent < kMessages && pair->a.Send("held", more, sent) == SendOutcome::kSent) ++sent;
      pair->b.Pump();
      pair->a.Pump();
    }
    if (kept < kMessages) over = true;
    releaser.join();
    EXPECT_TRUE(pair->b.sink.failures.empty());
    EXPECT_EQ(kept, kMessages);
    EXPECT_EQ(sum, kMessages * (kMessages - 1) / 2);
  }
}

// They are copied into their slots while other threads post.
TEST(LaneThreads, LargeMessagesOfSeveralThreadsArriveWhole) {
  auto pair = MakeLanes("shm", LaneOptions(), LaneOptions());
  ASSERT_NE(pair, nullptr);
  constexpr uint64_t kMessages = 5000;
  constexpr uint64_t kThreads = 3;
  uint64_t arrived = 0;
  uint64_t broken = 0;
  pair->b.sink.on_message = [&](const MessageHeader& header, Span<const uint8_t> payload,
                                SlotHold) {
    for (const uint8_t byte : payload) broken += byte != header.tag % 251 ? 1 : 0;
    ++arrived;
    return Disposition::kDone;
  };
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      // Those of the last thread share slots.
      const size_t bytes = t + 1 < kThreads ? pair->a.lane->max_payload() : 16;
      for (uint64_t i = 0; i < kMessages && !over;) {
        const std::string payload(bytes, static_cast<char>((t * kMessages + i) % 251));
        const bool more = i % 5 != 0 && i + 1 < kMessages;
        if (pair->a.Send(payload, more, t * kMessages + i) == SendOutcome::kSent) {
          ++i;
        } else {
          std::this_thread::yield();
        }
      }
      pair->a.lane->Flush();
    });
  }
  for (const Deadline deadline = Deadline::After(60);
       arrived < kThreads * kMessages && !deadline.expired();) {
    pair->b.Pump();
    pair->a.Pump();
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(pair->b.sink.failures.empty());
  EXPECT_EQ(arrived, kThreads * kMessages);
  EXPECT_EQ(broken, 0u);
}

}  // namespace
}  // namespace rdmabatch::testing
