// What comes of strangers that connect to an engine's port: nothing.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <mutex>
#include <random>

#include "tests/cc/engine/engine_harness.h"
#include "tf_rdmabatch/cc/base/log.h"

namespace rdmabatch::testing {
namespace {

class StrangersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SetLogSink([this](LogLevel level, const std::string& message) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (level >= LogLevel::kWarning) lines_.push_back(message);
    });
    EngineOptions options = OptionsFor({"shm", ""}, "worker:0");
    options.handshake_timeout_s = 2;
    pair_.Start({"shm", ""}, options);
  }
  void TearDown() override { SetLogSink({}); }

  std::vector<std::string> lines() {
    std::lock_guard<std::mutex> lock(mutex_);
    return lines_;
  }
  // Connects, says something, and returns what comes back before the end.
  std::string Say(const std::string& bytes) {
    auto socket = ConnectTcp(pair_.address, Patience());
    EXPECT_TRUE(socket.ok()) << socket.status().message();
    if (!socket.ok()) return "";
    (void)socket->SendBytes(bytes, Patience());
    shutdown(socket->fd(), SHUT_WR);
    std::string answer;
    char byte;
    while (answer.size() < 1000 && socket->ReceiveBytes(&byte, 1, Patience()).ok()) answer += byte;
    return answer;
  }
  void ExpectTheJobGoesOn() {
    const uint64_t before = pair_.server_sink.messages;
    ASSERT_TRUE(pair_.connection->Send(User("still here"), Patience()).ok());
    EXPECT_TRUE(Eventually([&] { return pair_.server_sink.messages == before + 1; }));
    EXPECT_EQ(pair_.server_sink.connected, 1);
  }
  bool Refused(uint64_t count) {
    return Eventually([&] { return pair_.server->counters().refused == count; });
  }

  std::mutex mutex_;
  std::vector<std::string> lines_;
  EnginePair pair_;
};

TEST_F(StrangersTest, ABrowserGetsNothingAndIsToldOfOnce) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Say("GET / HTTP/1.1\r\nHost: node1\r\n\r\n"), "");
  }
  ASSERT_TRUE(Refused(20));
  ExpectTheJobGoesOn();
  const auto told = lines();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].rfind("refused 127.0.0.1:", 0), 0u) << told[0];
  EXPECT_NE(told[0].find("is not this program"), std::string::npos) << told[0];
}

TEST_F(StrangersTest, RandomBytesAreRefused) {
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    std::string bytes(random() % 5000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    EXPECT_EQ(Say(bytes), "");
  }
  ASSERT_TRUE(Refused(50));
  ExpectTheJobGoesOn();
  EXPECT_LE(lines().size(), 2u);  // what is no greeting, and what ends within one
}

// More of them than handshakes at a time.
TEST_F(StrangersTest, SilentOnesHoldUpAPeerNoLongerThanTheTimeout) {
  std::vector<BootstrapSocket> silent;
  for (int i = 0; i < 40; ++i) {
    auto socket = ConnectTcp(pair_.address, Patience());
    ASSERT_TRUE(socket.ok()) << socket.status().message();
    silent.push_back(std::move(*socket));
  }
  ExpectTheJobGoesOn();
  EngineSink sink;
  auto late = MakeEngine(OptionsFor({"shm", ""}, "worker:1"), &sink);
  auto connection = late->Connect(pair_.address, Patience());
  EXPECT_TRUE(connection.ok()) << connection.status().message();
  ASSERT_TRUE(Refused(40));
  EXPECT_EQ(lines().size(), 1u);
}

}  // namespace
}  // namespace rdmabatch::testing
