// The progress thread, whose transport is the test.
#include "tf_rdmabatch/cc/engine/progress.h"

#include <gtest/gtest.h>

#include "tests/cc/engine/lane_harness.h"

namespace rdmabatch::testing {
namespace {

TEST(ProgressTest, WhatCameWithTheEndIsDelivered) {
  for (const Confirm confirm : {Confirm::kBatch, Confirm::kEach}) {
    EngineOptions options = LaneOptions();
    options.confirm = confirm;
    auto pair = MakeLanes("fake", options, options);
    ASSERT_NE(pair, nullptr);
    LaneEnd& b = pair->b;
    ASSERT_EQ(pair->a.Send("first", false), SendOutcome::kSent);
    ASSERT_EQ(pair->a.Send("last", false), SendOutcome::kSent);
    pair->a.lane->Flush();
    static_cast<FakeTransport*>(b.transport.get())
        ->arrivals.push_back({b.fake->context(), 0, false, "the peer is gone"});
    ProgressThread progress({b.transport}, 0);
    ASSERT_TRUE(progress.Start().ok());
    progress.Stop();
    ASSERT_EQ(b.sink.messages.size(), 2u);
    EXPECT_EQ(b.sink.messages[1].bytes, "last");
    ASSERT_EQ(b.sink.failures.size(), 1u);
    EXPECT_EQ(b.sink.failures[0].message(), "the peer is gone");
  }
}

}  // namespace
}  // namespace rdmabatch::testing
