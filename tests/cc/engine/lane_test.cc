// What a lane does when everybody behaves: exact counts, packing, gathering, backpressure.
#include "tf_rdmabatch/cc/engine/lane.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tests/cc/engine/lane_harness.h"

namespace rdmabatch::testing {
namespace {

class LaneTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<LanePair> Make(const EngineOptions& options) {
    return MakeLanes(GetParam(), options, options);
  }
  bool fake() const { return std::string(GetParam()) == "fake"; }
};

INSTANTIATE_TEST_SUITE_P(Over, LaneTest, ::testing::Values("shm", "fake"),
                         [](const auto& info) { return std::string(info.param); });

// N messages that fill a slot each, in chains of B: everything is paid once a chain.
TEST_P(LaneTest, CountsOfBatches) {
  constexpr uint64_t kMessages = 1024;
  for (const uint64_t chain : {1u, 4u, 16u, 64u}) {
    auto pair = Make(LaneOptions());
    ASSERT_NE(pair, nullptr);
    const std::string payload(pair->a.lane->max_payload(), 'x');
    for (uint64_t i = 0; i < kMessages; ++i) {
      ASSERT_EQ(pair->a.Send(payload, (i + 1) % chain != 0, i), SendOutcome::kSent);
      if ((i + 1) % chain == 0) pair->PumpAll();
    }
    ASSERT_EQ(pair->a.ChainsInFlight(), 0u);
    ASSERT_EQ(pair->b.ChainsInFlight(), 0u);
    const CounterValues a = pair->a.counters();
    const CounterValues b = pair->b.counters();
    const uint64_t chains = kMessages / chain;
    EXPECT_EQ(a.messages_sent, kMessages);
    EXPECT_EQ(a.slots_sent, kMessages);
    EXPECT_EQ(a.batches_sent, chains);
    EXPECT_EQ(a.doorbells, chains);
    // Contiguous full slots are one write; on shared memory they were composed in place.
    EXPECT_EQ(a.work_requests, fake() ? 2 * chains : chains);
    EXPECT_EQ(a.send_completions, chains);
    EXPECT_EQ(a.receive_completions, 0u) << "freed words need no immediate";
    EXPECT_EQ(a.acks, 0u);
    EXPECT_EQ(a.slot_stalls, 0u);
    EXPECT_EQ(b.messages_received, kMessages);
    EXPECT_EQ(b.receive_completions, chains);
    EXPECT_EQ(b.acks, chains);
    EXPECT_EQ(b.doorbells, chains);
    EXPECT_EQ(b.work_requests, chains);
    EXPECT_EQ(b.send_completions, chains);
    ASSERT_EQ(pair->b.sink.messages.size(), kMessages);
    for (uint64_t i = 0; i < kMessages; ++i) EXPECT_EQ(pair->b.sink.messages[i].tag, i);
  }
}

TEST_P(LaneTest, CountsOfOneByOne) {
  constexpr uint64_t kMessages = 500;
  for (const uint32_t window : {1u, 0u}) {
    EngineOptions options = LaneOptions();
    options.confirm = Confirm::kEach;
    options.window = window;
    auto pair = Make(options);
    ASSERT_NE(pair, nullptr);
    for (uint64_t i = 0; i < kMessages;) {
      uint64_t sent = 0;
      while (i < kMessages && pair->a.Send("small", i + 1 < kMessages, i) == SendOutcome::kSent) {
        ++i;
        ++sent;
      }
      if (i < kMessages) {
        EXPECT_EQ(sent, window == 1 ? 1u : 64u);
      }
      pair->PumpAll();
    }
    ASSERT_EQ(pair->a.ChainsInFlight(), 0u);
    ASSERT_EQ(pair->b.ChainsInFlight(), 0u);
    const CounterValues a = pair->a.counters();
    const CounterValues b = pair->b.counters();
    for (const uint64_t count :
         {a.messages_sent, a.slots_sent, a.batches_sent, a.doorbells, a.work_requests,
          a.send_completions, a.receive_completions, b.messages_received, b.receive_completions,
          b.acks, b.doorbells, b.work_requests, b.send_completions}) {
      EXPECT_EQ(count, kMessages);
    }
  }
}

TEST_P(LaneTest, SmallMessagesShareASlot) {
  auto pair = Make(LaneOptions());
  ASSERT_NE(pair, nullptr);
  // A header of 16 bytes, then 16 + 24 bytes a message.
  const uint64_t fit = (4096 - 16) / 40;
  for (uint64_t i = 0; i < 3 * fit; ++i) {
    ASSERT_EQ(pair->a.Send(std::string(17 + i % 8, static_cast<char>(i)), true, i),
              SendOutcome::kSent);
  }
  EXPECT_EQ(pair->a.counters().doorbells, 0u) << "more was promised";
  EXPECT_TRUE(pair->a.lane->Flush());
  pair->PumpAll();
  EXPECT_EQ(pair->a.counters().slots_sent, 3u);
  EXPECT_EQ(pair->a.counters().doorbells, 1u);
  ASSERT_EQ(pair->b.sink.messages.size(), 3 * fit);
  for (uint64_t i = 0; i < 3 * fit; ++i) {
    EXPECT_EQ(pair->b.sink.messages[i].tag, i);
    EXPECT_EQ(pair->b.sink.messages[i].bytes, std::string(17 + i % 8, static_cast<char>(i)));
  }
}

TEST_P(LaneTest, MessagesOfNoBytesAndOfAWholeSlot) {
  auto pair = Make(LaneOptions());
  ASSERT_NE(pair, nullptr);
  const std::string whole(pair->a.lane->max_payload(), 'w');
  ASSERT_EQ(pair->a.Send("", true), SendOutcome::kSent);
  ASSERT_EQ(pair->a.Send(whole, true), SendOutcome::kSent);
  ASSERT_EQ(pair->a.Send("", false), SendOutcome::kSent);
  pair->PumpAll();
  ASSERT_EQ(pair->b.sink.messages.size(), 3u);
  EXPECT_EQ(pair->b.sink.messages[0].bytes, "");
  EXPECT_EQ(pair->b.sink.messages[1].bytes, whole);
  EXPECT_EQ(pair->b.sink.messages[2].bytes, "");
}

TEST_P(LaneTest, ALoneMessageIsPostedAtOnceAndOthersGatherWhileChainsFly) {
  EngineOptions options = LaneOptions();
  options.chains_in_flight = 2;
  auto pair = Make(options);
  ASSERT_NE(pair, nullptr);
  if (fake()) pair->a.fake->hold_completions = true;
  ASSERT_EQ(pair->a.Send("1", false), SendOutcome::kSent);
  EXPECT_EQ(pair->a.counters().doorbells, 1u);
  ASSERT_EQ(pair->a.Send("2", false), SendOutcome::kSent);
  EXPECT_EQ(pair->a.counters().doorbells, 2u);
  for (int i = 0; i < 10; ++i) ASSERT_EQ(pair->a.Send("gathers", false), SendOutcome::kSent);
  EXPECT_EQ(pair->a.counters().doorbells, 2u) << "two chains are on their way";
  EXPECT_TRUE(pair->a.lane->wants_service());
  EXPECT_FALSE(pair->a.lane->Service()) << "nothing has completed";
  EXPECT_TRUE(pair->a.lane->wants_service());
  pair->b.Pump();
  EXPECT_EQ(pair->b.sink.messages.size(), 2u);
  if (fake()) pair->a.fake->completable = 2;
  EXPECT_TRUE(pair->a.lane->Service());
  EXPECT_EQ(pair->a.counters().doorbells, 3u) << "what gathered goes with one doorbell";
  EXPECT_EQ(pair->a.counters().slots_sent, 3u);
  pair->b.Pump();
  EXPECT_EQ(pair->b.sink.messages.size(), 12u);
}

TEST_P(LaneTest, AFullBatchIsPostedWhateverFlies) {
  EngineOptions options = LaneOptions();
  options.max_batch = 4;
  auto pair = Make(options);
  ASSERT_NE(pair, nullptr);
  if (fake()) pair->a.fake->hold_completions = true;
  const std::string payload(pair->a.lane->max_payload(), 'x');
  for (int i = 0; i < 21; ++i) ASSERT_EQ(pair->a.Send(payload, true), SendOutcome::kSent);
  EXPECT_EQ(pair->a.counters().doorbells, 5u);
  EXPECT_EQ(pair->a.counters().slots_sent, 21u);
  EXPECT_EQ(pair->a.counters().batches_sent, 5u) << "the last one waits for more";
}

TEST_P(LaneTest, ASenderWithoutSlotsAsksOnceAndGoesOn) {
  auto pair = Make(LaneOptions());
  ASSERT_NE(pair, nullptr);
  const std::string payload(pair->a.lane->max_payload(), 'x');
  for (int i = 0; i < 64; ++i) ASSERT_EQ(pair->a.Send(payload, true), SendOutcome::kSent);
  EXPECT_EQ(pair->a.Send(payload, true), SendOutcome::kNoSlot);
  EXPECT_EQ(pair->a.counters().slot_stalls, 1u);
  EXPECT_EQ(pair->a.counters().doorbells, 1u) << "what gathered was posted";
  EXPECT_EQ(pair->a.Send(payload, true), SendOutcome::kNoSlot);
  const uint64_t key = pair->a.lane->writable().Prepare();
  pair->a.lane->WantSlots();
  pair->a.lane->WantSlots();
  EXPECT_EQ(pair->a.counters().doorbells, 2u) << "one request at a time";
  pair->b.Pump();
  EXPECT_EQ(pair->b.counters().receive_completions, 2u);
  pair->a.Pump();
  EXPECT_EQ(pair->a.counters().receive_completions, 1u) << "the answer";
  EXPECT_TRUE(pair->a.lane->writable().Wait(key, Deadline::After(0)));
  for (int i = 0; i < 64; ++i) ASSERT_EQ(pair->a.Send(payload, true), SendOutcome::kSent);
  EXPECT_EQ(pair->a.Send(payload, true), SendOutcome::kNoSlot);
  pair->a.lane->WantSlots();
  pair->PumpAll();
  EXPECT_EQ(pair->a.counters().receive_completions, 2u) << "it may ask again";
  EXPECT_EQ(pair->b.sink.messages.size(), 128u);
}

TEST_P(LaneTest, AWaitingSenderIsAnsweredByTheFirstReleaseFromAnyThread) {
  for (const Confirm confirm : {Confirm::kBatch, Confirm::kEach}) {
    EngineOptions options = LaneOptions();
    options.confirm = confirm;
    auto pair = Make(options);
    ASSERT_NE(pair, nullptr);
    pair->b.sink.keep = true;
    const std::string payload(pair->a.lane->max_payload(), 'x');
    for (int i = 0; i < 64; ++i) ASSERT_EQ(pair->a.Send(payload, false), SendOutcome::kSent);
    EXPECT_EQ(pair->a.Send(payload, false), SendOutcome::kNoSlot);
    pair->a.lane->WantSlots();
    pair->PumpAll();
    ASSERT_EQ(pair->b.sink.holds.size(), 64u);
    EXPECT_EQ(pair->a.Send(payload, false), SendOutcome::kNoSlot) << "all are held";
    EXPECT_EQ(pair->a.counters().receive_completions, 0u);
    std::thread([&] { EXPECT_TRUE(pair->b.lane->Release(pair->b.sink.holds[40].slot)); }).join();
    EXPECT_FALSE(pair->b.lane->Release(pair->b.sink.holds[40].slot)) << "not held any more";
    EXPECT_FALSE(pair->b.lane->Release(64));
    EXPECT_TRUE(pair->a.Pump());
    EXPECT_EQ(pair->a.counters().receive_completions, 1u);
    EXPECT_EQ(pair->a.Send(payload, false), SendOutcome::kSent);
    EXPECT_EQ(pair->a.Send(payload, false), SendOutcome::kNoSlot);
    EXPECT_TRUE(pair->b.sink.failures.empty());
  }
}

TEST_P(LaneTest, ASlotStaysUntilEveryMessageInItIsReleased) {
  auto pair = Make(LaneOptions());
  ASSERT_NE(pair, nullptr);
  pair->b.sink.keep = true;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(pair->a.Send("m", i < 2), SendOutcome::kSent);
  pair->PumpAll();
  ASSERT_EQ(pair->b.sink.holds.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(pair->b.counters().acks, 0u);
    EXPECT_TRUE(pair->b.lane->Release(0));
  }
  EXPECT_EQ(pair->b.counters().acks, 1u);
}

// Both directions at once, every size, indices that wrap after a few steps.
TEST_P(LaneTest, RandomTrafficBothWaysFromNearTheEndOfTheIndices) {
  for (const Confirm confirm : {Confirm::kBatch, Confirm::kEach}) {
    for (const uint32_t slots : {64u, 192u}) {
      EngineOptions a = LaneOptions();
      a.confirm = confirm;
      a.max_batch = 16;
      a.first_index = 0xfffffff0u;
      EngineOptions b = a;
      a.slots = slots;
      a.slot_bytes = 512;
      auto pair = MakeLanes(GetParam(), a, b);
      ASSERT_NE(pair, nullptr);
      std::mt19937 random(slots);
      std::vector<LaneSink::Message> sent[2];
      LaneEnd* ends[2] = {&pair->a, &pair->b};
      for (int step = 0; step < 20000; ++step) {
        LaneEnd& end = *ends[random() % 2];
        if (random() % 4 == 0) {
          end.Pump(1 + random() % 8);
          continue;
        }
        const std::string bytes(random() % (end.lane->max_payload() + 1),
                                static_cast<char>(random()));
        auto& log = sent[&end == &pair->b ? 1 : 0];
        if (end.Send(bytes, random() % 3 != 0, log.size()) == SendOutcome::kSent) {
          log.push_back({log.size(), bytes});
        }
      }
      for (LaneEnd* end : ends) EXPECT_TRUE(end->lane->Flush());
      pair->PumpAll();
      for (int i = 0; i < 2; ++i) {
        auto& got = ends[1 - i]->sink.messages;
        ASSERT_TRUE(ends[i]->sink.failures.empty()) << ends[i]->sink.failures[0].message();
        ASSERT_EQ(got.size(), sent[i].size());
        ASSERT_GT(got.size(), 1000u);
        std::sort(got.begin(), got.end(), [](auto& x, auto& y) { return x.tag < y.tag; });
        for (size_t m = 0; m < got.size(); ++m) {
          ASSERT_EQ(got[m].tag, m);
          ASSERT_EQ(got[m].bytes, sent[i][m].bytes);
        }
      }
    }
  }
}

// Where completions come by the progress thread, it must not wait for one.
TEST(LaneQueueTest, AcknowledgementsWaitForRoomAndTheProgressThreadDoesNot) {
  EngineOptions options = LaneOptions();
  options.confirm = Confirm::kEach;
  auto pair = MakeLanes("fake", options, options);
  ASSERT_NE(pair, nullptr);
  LaneEnd& a = pair->a;
  LaneEnd& b = pair->b;
  b.fake->hold_completions = true;
  // Reads, then messages, until the queue is full.
  uint64_t word = 0;
  Transfer read;
  read.local.address = reinterpret_cast<uint8_t*>(&word);
  read.remote.address = reinterpret_cast<uint64_t>(a.memory());
  read.remote.key = a.fake->exported.at(0).remote_key;
  read.bytes = sizeof(word);
  const std::vector<Transfer> reads(b.fake->send_queue_free(), read);
  TransferBatch batch;
  const Span<const Transfer> all(reads.data(), reads.size());
  ASSERT_FALSE(b.lane->PostTransfers(all, &batch));
  while (b.Send("of b", false) == SendOutcome::kSent) continue;
  const uint32_t most = b.fake->send_queue_free();
  constexpr uint32_t kMessages = 10;
  ASSERT_LT(most, kMessages);
  for (uint32_t i = 0; i < kMessages; ++i) ASSERT_EQ(a.Send("of a", false), SendOutcome::kSent);
  b.Pump();
  EXPECT_EQ(b.sink.messages.size(), kMessages);
  EXPECT_LT(b.counters().acks, kMessages);
  EXPECT_TRUE(b.fake->wants_events);
  b.fake->hold_completions = false;
  while (!b.lane->PostTransfers(all, &batch)) continue;
  pair->PumpAll();
  EXPECT_EQ(b.counters().acks, kMessages);
  for (uint32_t i = 0; i < options.slots; ++i) {
    EXPECT_EQ(a.Send("every slot is free", true), SendOutcome::kSent) << i;
  }
}

}  // namespace
}  // namespace rdmabatch::testing
