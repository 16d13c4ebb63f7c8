#include "tf_rdmabatch/cc/engine/hello.h"

#include <gtest/gtest.h>

namespace rdmabatch {
namespace {

Hello Sample() {
  Hello hello;
  hello.name = "worker:0";
  hello.host_name = "node1";
  hello.software = {{"tf_rdmabatch", "0.1.0"}, {"TensorFlow", "2.21.0"}};
  hello.boot_id = "a boot";
  hello.network = "net:[4]";
  hello.pid = 4711;
  hello.geometry = {128, 4096};
  hello.lanes = 3;
  hello.confirm = Confirm::kEach;
  hello.transports = {{"near", ""}, {"far", "no device"}};
  return hello;
}

TEST(HelloTest, ArrivesAsItWasSent) {
  const Hello sent = Sample();
  auto got = Hello::Decode(sent.Encode(), Sample());
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(got->Encode(), sent.Encode());
  EXPECT_EQ(got->transports[1].why_not, "no device");
}

TEST(HelloTest, EveryTruncationAndWhatIsOutOfRangeIsRefused) {
  const std::string bytes = Sample().Encode();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(Hello::Decode(bytes.substr(0, size), Sample()).status().code(),
              StatusCode::kDataLoss);
  }
  EXPECT_FALSE(Hello::Decode(bytes + "x", Sample()).ok());
  Hello wild = Sample();
  wild.lanes = 17;
  EXPECT_EQ(Hello::Decode(wild.Encode(), Sample()).status().code(), StatusCode::kDataLoss);
  wild = Sample();
  wild.geometry.slots = 65;
  EXPECT_EQ(Hello::Decode(wild.Encode(), Sample()).status().code(), StatusCode::kDataLoss);
}

TEST(HelloTest, WhatIsTooLongIsCutAndWhatCannotBePrintedReplaced) {
  Hello long_one = Sample();
  long_one.name.assign(1000, 'n');
  long_one.host_name = "node\n1";
  long_one.transports.assign(100, {"far", std::string(5000, 'r')});
  auto got = Hello::Decode(long_one.Encode(), Sample());
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(got->name.size(), 128u);
  EXPECT_EQ(got->host_name, "node?1");
  EXPECT_EQ(got->transports.size(), 16u);
  EXPECT_LT(long_one.Encode().size(), 16384u);
}

TEST(HelloTest, AnotherMinorVersionIsRefusedAndBothHostsAreNamed) {
  Hello peer = Sample();
  peer.name = "ps:0";
  peer.host_name = "node2";
  peer.software[1].version = "2.20.1";
  // Whatever comes behind the versions: another release may have another layout.
  const std::string bytes = peer.Encode();
  for (const std::string& sent : {bytes, bytes.substr(0, bytes.size() / 2)}) {
    const Status status = Hello::Decode(sent, Sample()).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.message();
    EXPECT_EQ(status.message(),
              "worker:0 on host node1 has TensorFlow 2.21.0, and ps:0 on host node2 has 2.20.1: "
              "install the same version on both");
  }
}

TEST(HelloTest, APatchOrAProgramThatOneSideLacksIsNoMatter) {
  Hello peer = Sample();
  peer.software = {{"tf_rdmabatch", "0.1.9"}};
  EXPECT_TRUE(Hello::Decode(peer.Encode(), Sample()).ok());
  peer.software = {{"tf_rdmabatch", "0.2.0"}};
  EXPECT_FALSE(Hello::Decode(peer.Encode(), Sample()).ok());
}

}  // namespace
}  // namespace rdmabatch
