// What every transport must do with data: order, visibility, chains, and what is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "tests/cc/transport/harness.h"

namespace rdmabatch::testing {
namespace {

using ConformanceData = TransportTest;

TEST_P(ConformanceData, WriteThenImmediateIsVisible) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  Fill(pair.a.staging.local.address, 1000, 1);
  const WorkRequest chain[] = {pair.a.Write(0, 64, 1000), pair.a.WriteImm(0, 0, 8, 77, 5)};
  ASSERT_EQ(pair.a.endpoint->Post(chain), 2u);
  const auto arrivals = pair.b.TakeArrivals(1, Patience());
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_TRUE(arrivals[0].ok);
  EXPECT_EQ(arrivals[0].id, 2u);
  EXPECT_EQ(arrivals[0].immediate, 77u);
  EXPECT_TRUE(Holds(pair.b.arena.local.address + 64, 1000, 1));
  const auto sends = pair.a.TakeSends(1, Patience());
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_TRUE(sends[0].ok);
  EXPECT_EQ(sends[0].id, 5u);
}

TEST_P(ConformanceData, BothDirectionsAtOnce) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  for (uint32_t round = 0; round < 100; ++round) {
    for (Side* side : {&pair.a, &pair.b}) {
      Fill(side->staging.local.address, 256, round);
      ASSERT_TRUE(side->PostAll(Chain({side->WriteImm(0, 512, 256, round)}), Patience()));
    }
    for (Side* side : {&pair.a, &pair.b}) {
      const auto arrivals = side->TakeArrivals(1, Patience());
      ASSERT_EQ(arrivals.size(), 1u);
      EXPECT_EQ(arrivals[0].immediate, round);
      EXPECT_TRUE(Holds(side->arena.local.address + 512, 256, round));
    }
    for (Side* side : {&pair.a, &pair.b}) ASSERT_EQ(side->TakeSends(1, Patience()).size(), 1u);
  }
}

TEST_P(ConformanceData, EmptyWriteWithImmediate) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  WorkRequest request = pair.a.WriteImm(0, 0, 0, 0xffffffff);
  request.local = nullptr;
  ASSERT_EQ(pair.a.endpoint->Post(Chain({request})), 1u);
  const auto arrivals = pair.b.TakeArrivals(1, Patience());
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].immediate, 0xffffffffu);
}

// A million bytes at random sizes and alignments, each sum visible when its immediate is.
TEST_P(ConformanceData, PayloadsPrecedeTheirImmediate) {
  constexpr uint32_t kSlots = 8;
  constexpr uint64_t kSlotBytes = 64 << 10;
  const uint32_t messages = IsShm() ? 4000 : 1000;
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  std::atomic<uint32_t> verified{0};
  std::atomic<bool> sent{false};
  std::thread sender([&] {
    std::mt19937 random(42);
    for (uint32_t i = 0; i < messages; ++i) {
      const Deadline deadline = Patience();
      while (i - verified.load() >= kSlots && !deadline.expired()) std::this_thread::yield();
      const uint32_t offset = i % kSlots * kSlotBytes;
      const uint32_t length = i % 7 == 0 ? kSlotBytes : 1 + random() % kSlotBytes;
      Fill(pair.a.staging.local.address + offset, length, i);
      std::vector<WorkRequest> chain;
      for (uint32_t at = 0; at < length;) {
        const uint32_t part = std::min<uint32_t>(length - at, 1 + random() % kSlotBytes);
        chain.push_back(pair.a.Write(offset + at, offset + at, part, i));
        at += part;
      }
      // The length travels in the immediate, which also says how much to verify.
      chain.push_back(pair.a.WriteImm(0, 0, 0, length, i));
      if (!pair.a.PostAll(Chain(chain), Patience())) return;
    }
    sent = true;
  });
  for (uint32_t i = 0; i < messages; ++i) {
    const auto arrivals = pair.b.TakeArrivals(1, Patience());
    if (arrivals.size() != 1 || !arrivals[0].ok) break;
    const uint32_t length = arrivals[0].immediate;
    if (!Holds(pair.b.arena.local.address + i % kSlots * kSlotBytes, length, i)) break;
    ++verified;
  }
  sender.join();
  EXPECT_TRUE(sent);
  EXPECT_EQ(verified, messages);
}

TEST_P(ConformanceData, AlignedWordsArriveWhole) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  std::atomic<bool> stop{false};
  std::atomic<bool> posted{true};
  std::thread sender([&] {
    for (uint64_t i = 0; !stop && posted; ++i) {
      const uint64_t word = i % 2 == 0 ? 0 : ~uint64_t{0};
      std::memcpy(pair.a.staging.local.address, &word, 8);
      posted = pair.a.PostAll(Chain({pair.a.Write(0, 8, 8)}), Patience()) &&
               pair.a.TakeSends(1, Patience()).size() == 1;
    }
  });
  auto* word = reinterpret_cast<uint64_t*>(pair.b.arena.local.address + 8);
  uint64_t changes = 0;
  uint64_t last = 0;
  bool whole = true;
  const Deadline enough = Deadline::After(0.5);
  while (whole && (!enough.expired() || changes < 2) && posted) {
    const uint64_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    whole = value == 0 || value == ~uint64_t{0};
    changes += value != last;
    last = value;
    pair.b.Poll();
    std::this_thread::yield();
  }
  stop = true;
  sender.join();
  EXPECT_TRUE(posted);
  EXPECT_TRUE(whole);
  EXPECT_GE(changes, 2u);
}

TEST_P(ConformanceData, InlinePayloadsAreReadDuringPost) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  ASSERT_GE(pair.a.endpoint->max_inline(), 8u);
  for (uint64_t i = 0; i < 64; ++i) {
    uint64_t word = i + 1000;  // not in registered memory
    WorkRequest request = pair.a.WriteImm(0, 64 + 8 * i, 8, static_cast<uint32_t>(i));
    request.inline_data = true;
    request.local = reinterpret_cast<uint8_t*>(&word);
    request.local_key = 0;
    ASSERT_TRUE(pair.a.PostAll(Chain({request}), Patience()));
    word = 0;
    ASSERT_EQ(pair.b.TakeArrivals(1, Patience()).size(), 1u);
    uint64_t arrived;
    std::memcpy(&arrived, pair.b.arena.local.address + 64 + 8 * i, 8);
    EXPECT_EQ(arrived, i + 1000);
  }
}

TEST_P(ConformanceData, ReadsInAChain) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  Fill(pair.b.published.local.address, kArenaBytes, 2);
  std::vector<WorkRequest> chain;
  for (uint32_t i = 0; i < 32; ++i) {
    chain.push_back(pair.a.Read(i * 4096, (31 - i) * 4096, i % 2 == 0 ? 4096 : 8, i));
  }
  ASSERT_EQ(pair.a.endpoint->Post(Chain(chain)), chain.size());
  const auto sends = pair.a.TakeSends(1, Patience(), &pair.b);
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_TRUE(sends[0].ok);
  EXPECT_EQ(sends[0].id, 31u);
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(std::memcmp(pair.a.staging.local.address + i * 4096,
                          pair.b.published.local.address + (31 - i) * 4096, i % 2 == 0 ? 4096 : 8),
              0)
        << i;
  }
}

TEST_P(ConformanceData, OneReadOfAWholeRegion) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  Fill(pair.b.published.local.address, kArenaBytes, 3);
  ASSERT_EQ(pair.a.endpoint->Post(Chain({pair.a.Read(0, 0, kArenaBytes, 9)})), 1u);
  const auto sends = pair.a.TakeSends(1, Patience(), &pair.b);
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_TRUE(sends[0].ok);
  EXPECT_TRUE(Holds(pair.a.staging.local.address, kArenaBytes, 3));
}

TEST_P(ConformanceData, AChainCostsOneDoorbellAndOneCompletion) {
  constexpr uint64_t kChains = 10;
  constexpr uint64_t kWrites = 32;
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  for (uint64_t i = 0; i < kChains; ++i) {
    std::vector<WorkRequest> chain;
    for (uint64_t j = 0; j < kWrites; ++j) chain.push_back(pair.a.Write(j * 64, j * 64, 64, 1));
    chain.push_back(pair.a.WriteImm(0, 4096, 8, 0, 100 + i));
    ASSERT_EQ(pair.a.endpoint->Post(Chain(chain)), kWrites + 1);
    EXPECT_EQ(pair.a.endpoint->chains_in_flight(), 1u);
    ASSERT_EQ(pair.b.TakeArrivals(1, Patience()).size(), 1u);
    const auto sends = pair.a.TakeSends(1, Patience());
    ASSERT_EQ(sends.size(), 1u);
    EXPECT_EQ(sends[0].id, 100 + i);
    EXPECT_EQ(pair.a.endpoint->chains_in_flight(), 0u);
  }
  const CounterValues sender = pair.a.counters->values();
  const CounterValues receiver = pair.b.counters->values();
  EXPECT_EQ(sender.doorbells, kChains);
  // Without WRITE with immediate, iWARP takes two work requests to announce.
  EXPECT_GE(sender.work_requests, kChains * (kWrites + 1));
  EXPECT_LE(sender.work_requests, kChains * (kWrites + (IsShm() ? 1 : 2)));
  EXPECT_EQ(sender.send_completions, kChains);
  EXPECT_EQ(sender.receive_completions, 0u);
  EXPECT_EQ(sender.queue_stalls, 0u);
  EXPECT_EQ(receiver.doorbells, 0u);
  EXPECT_EQ(receiver.receive_completions, kChains);
  if (IsShm()) {
    EXPECT_EQ(sender.copies, kChains * kWrites);  // words are stored, not copied
    EXPECT_EQ(sender.bytes_copied, kChains * kWrites * 64);
  }
}

TEST_P(ConformanceData, SeveralImmediatesInAChainArriveInOrder) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  std::vector<WorkRequest> chain;
  for (uint32_t i = 0; i < 20; ++i) chain.push_back(pair.a.WriteImm(0, i * 8, 8, i, i));
  ASSERT_EQ(pair.a.endpoint->Post(Chain(chain)), 20u);
  const auto arrivals = pair.b.TakeArrivals(20, Patience());
  ASSERT_EQ(arrivals.size(), 20u);
  for (uint32_t i = 0; i < 20; ++i) EXPECT_EQ(arrivals[i].immediate, i);
  const auto sends = pair.a.TakeSends(1, Patience());
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_EQ(sends[0].id, 19u);
}

TEST_P(ConformanceData, IndicesWrap) {
  for (uint32_t before : {1u, 7u, 100u, 256u}) {
    Pair pair;
    EndpointOptions a = Options(1);
    EndpointOptions b = Options(2);
    a.first_index = 0u - before;
    b.first_index = 0x80000000u - before;
    a.max_receives = b.max_receives = 48;
    ASSERT_NO_FATAL_FAILURE(Connect(&pair, a, b));
    for (uint32_t i = 0; i < 400; ++i) {
      for (Side* side : {&pair.a, &pair.b}) {
        ASSERT_EQ(side->endpoint->Post(Chain({side->WriteImm(0, 0, 8, i, i)})), 1u);
      }
      for (Side* side : {&pair.a, &pair.b}) {
        const auto arrivals = side->TakeArrivals(1, Patience());
        ASSERT_EQ(arrivals.size(), 1u);
        ASSERT_TRUE(arrivals[0].ok);
        ASSERT_EQ(arrivals[0].immediate, i);
      }
      for (Side* side : {&pair.a, &pair.b}) {
        const auto sends = side->TakeSends(1, Patience());
        ASSERT_EQ(sends.size(), 1u);
        ASSERT_TRUE(sends[0].ok);
        ASSERT_EQ(sends[0].id, i);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, ConformanceData, ::testing::ValuesIn(Subjects()), SubjectName);

}  // namespace
}  // namespace rdmabatch::testing
