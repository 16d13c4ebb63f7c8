// What every transport must do, whichever it is.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <set>
#include <thread>

#include "tests/cc/transport/harness.h"

namespace rdmabatch::testing {
namespace {

using Conformance = TransportTest;

Deadline Patience() { return Deadline::After(kPatience); }

TEST_P(Conformance, WriteThenImmediateIsVisible) {
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

TEST_P(Conformance, ReadsInAChain) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  Fill(pair.b.published.local.address, kArenaBytes, 2);
  std::vector<WorkRequest> chain;
  for (uint32_t i = 0; i < 16; ++i)
    chain.push_back(pair.a.Read(i * 4096, (15 - i) * 4096, 4096, i));
  ASSERT_TRUE(pair.a.PostAll(Span<const WorkRequest>(chain.data(), chain.size()), Patience()));
  const auto sends = pair.a.TakeSends(1, Patience());
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_EQ(sends[0].id, 15u);
  for (uint32_t i = 0; i < 16; ++i) {
    EXPECT_EQ(std::memcmp(pair.a.staging.local.address + i * 4096,
                          pair.b.published.local.address + (15 - i) * 4096, 4096),
              0);
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Conformance, ::testing::ValuesIn(Subjects()),
                         [](const auto& info) { return ::testing::PrintToString(info.param); });

}  // namespace
}  // namespace rdmabatch::testing
