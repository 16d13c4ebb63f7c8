#include "tf_rdmabatch/cc/engine/transport_rules.h"

#include <gtest/gtest.h>

namespace rdmabatch {
namespace {

const TransportFactory kKnown[] = {{"near", nullptr, nullptr}, {"far", nullptr, nullptr}};

TransportRules Parsed(const std::string& text) {
  auto rules = TransportRules::Parse(text, kKnown);
  EXPECT_TRUE(rules.ok()) << text << ": " << rules.status().message();
  return rules.ok() ? std::move(*rules) : TransportRules();
}

TEST(TransportRulesTest, OneForAll) {
  EXPECT_EQ(Parsed("auto").For("worker:0", "ps:0"), "auto");
  const TransportRules rules = Parsed("far");
  EXPECT_EQ(rules.For("worker:0", "ps:0"), "far");
  EXPECT_EQ(rules.For("", ""), "far");
  EXPECT_TRUE(rules.MayUse("far"));
  EXPECT_FALSE(rules.MayUse("near"));
  EXPECT_TRUE(Parsed("auto").MayUse("near"));
}

TEST(TransportRulesTest, ATaskCountsMoreThanAJobAndThatMoreThanAll) {
  const TransportRules rules = Parsed("*=far,ps=auto,ps:1=near");
  EXPECT_EQ(rules.For("worker:0", "ps:1"), "near");
  EXPECT_EQ(rules.For("worker:0", "ps:0"), "auto");
  EXPECT_EQ(rules.For("worker:0", "worker:1"), "far");
  EXPECT_TRUE(rules.MayUse("near") && rules.MayUse("far"));
}

TEST(TransportRulesTest, BothSidesFindTheSame) {
  const TransportRules rules = Parsed("worker:0=near,ps:1=far");
  for (const std::string worker : {"worker:0", "worker:1", "worker:10"}) {
    for (const std::string server : {"ps:0", "ps:1"}) {
      EXPECT_EQ(rules.For(worker, server), rules.For(server, worker));
    }
  }
  EXPECT_EQ(rules.For("worker:0", "ps:1"), "near");  // the first of equals
  EXPECT_EQ(rules.For("worker:10", "ps:0"), "auto");
}

TEST(TransportRulesTest, TensorFlowsNamesOfTasks) {
  const TransportRules rules = Parsed("/job:ps/task:1=far,/job:worker=near,/job:chief/task:*=far");
  EXPECT_EQ(rules.For("worker:3", "ps:1"), "far");
  EXPECT_EQ(rules.For("worker:3", "ps:0"), "near");
  EXPECT_EQ(rules.For("chief:0", "ps:0"), "far");
}

TEST(TransportRulesTest, WhatIsForcedEverywhereNeedsNoOther) {
  const TransportRules rules = Parsed("ps:0=near,*=near");
  EXPECT_TRUE(rules.MayUse("near"));
  EXPECT_FALSE(rules.MayUse("far"));
}

TEST(TransportRulesTest, WhatIsWrongIsQuoted) {
  for (const std::string bad : {"", "pigeon", "near,far", "ps:0=pigeon", "=near",
                                "ps:0=", "ps=near,", "near,ps:0=far", "ps:0=near=far"}) {
    auto rules = TransportRules::Parse(bad, kKnown);
    ASSERT_FALSE(rules.ok()) << bad;
    EXPECT_EQ(rules.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(rules.status().message().find("choose one of auto, near, far"), std::string::npos)
        << rules.status().message();
  }
}

}  // namespace
}  // namespace rdmabatch
