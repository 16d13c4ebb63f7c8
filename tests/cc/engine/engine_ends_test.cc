// How connections begin and end: the first message, the last, closes and shutdowns.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "tests/cc/engine/engine_harness.h"

namespace rdmabatch::testing {
namespace {

class EngineEnds : public EngineTest {};

TEST_P(EngineEnds, APeerThatClosesIsNamedAndWhatItSentBeforeArrives) {
  EnginePair pair;
  ASSERT_NO_FATAL_FAILURE(pair.Start(GetParam(), Options()));
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(pair.connection->Send(User("last words"), Patience(), i < 99).ok());
  }
  pair.connection->Close();
  ASSERT_TRUE(Eventually([&] { return pair.server_sink.closed_count() == 1; }));
  EXPECT_EQ(pair.server_sink.messages, 100u);
  EXPECT_EQ(pair.server_sink.last_closed().code(), StatusCode::kUnavailable);
  EXPECT_NE(pair.server_sink.last_closed().message().find("client"), std::string::npos);
  EXPECT_NE(pair.server_sink.last_closed().message().find("closed"), std::string::npos);
  EXPECT_TRUE(pair.connection->closed());
  EXPECT_EQ(pair.connection->Send(User("late"), Patience()).code(), StatusCode::kCancelled);
  EXPECT_TRUE(Eventually([&] { return pair.client_sink.closed_count() == 1; }));
}

// An endpoint that was made while the progress thread slept must wake it like any other. Where that
// is missed, the thread's own bound of a second ends the sleep; on a busy machine some are late.
TEST_P(EngineEnds, TheFirstMessageToASleepingPeerWakesIt) {
  int late = 0;
  for (int round = 0; round < 10; ++round) {
    EnginePair pair;
    EngineOptions options = Options();
    options.spin_us = 0;
    ASSERT_NO_FATAL_FAILURE(pair.Start(GetParam(), options));
    ASSERT_TRUE(pair.connection->Send(User("first"), Patience()).ok());
    const auto arrived = [&] { return pair.server_sink.messages == 1; };
    late += Eventually(arrived, 0.7) ? 0 : 1;
    ASSERT_TRUE(Eventually(arrived)) << round;
  }
  EXPECT_LT(late, 5);
}

// The good-bye takes another path than the messages, and may be faster.
TEST_P(EngineEnds, LastWordsArriveHoweverSoonTheCloseComes) {
  for (const Confirm confirm : {Confirm::kBatch, Confirm::kEach}) {
    for (int round = 0; round < 20; ++round) {
      EnginePair pair;
      EngineOptions options = Options();
      options.confirm = confirm;
      ASSERT_NO_FATAL_FAILURE(pair.Start(GetParam(), options));
      ASSERT_TRUE(pair.connection->Send(User("last words"), Patience()).ok());
      pair.client->Shutdown();
      ASSERT_TRUE(Eventually([&] { return pair.server_sink.closed_count() == 1; }));
      ASSERT_EQ(pair.server_sink.messages, 1u) << "round " << round;
    }
  }
}

// The server keeps every message, so that the sender runs out of slots.
struct Stuck : EnginePair {
  Stuck() {
    server_sink.on_message = [](Connection&, const IncomingMessage&) { return Disposition::kHold; };
  }
  void Fill() {
    const std::string whole(connection->max_payload(), 'x');
    Status sent;
    while (sent.ok()) sent = connection->Send(User(whole), Deadline::After(0.1));
    EXPECT_EQ(sent.code(), StatusCode::kDeadlineExceeded);
    EXPECT_NE(sent.message().find("server"), std::string::npos) << sent.message();
    EXPECT_FALSE(connection->closed()) << "nothing of it was sent";
    // It may have been the queue that was full, where the progress thread was held up.
    while (sent = connection->TrySend(User(whole)), sent.ok()) continue;
    EXPECT_EQ(sent.code(), StatusCode::kResourceExhausted);
  }
  // What a Send that waits for a slot returns once `end` was called.
  Status Interrupt(const std::function<void()>& end) {
    Status sent;
    std::thread waiting([&] { sent = connection->Send(User(std::string(4000, 'y')), Patience()); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    end();
    waiting.join();
    return sent;
  }
};

TEST_P(EngineEnds, AShutdownEndsTheWaitsOfBothSides) {
  for (const bool own : {true, false}) {
    Stuck pair;
    ASSERT_NO_FATAL_FAILURE(pair.Start(GetParam(), Options()));
    pair.Fill();
    const Status sent = pair.Interrupt([&] { (own ? pair.client : pair.server)->Shutdown(); });
    EXPECT_EQ(sent.code(), own ? StatusCode::kCancelled : StatusCode::kUnavailable)
        << sent.message();
    EXPECT_NE(sent.message().find("server"), std::string::npos) << sent.message();
    EXPECT_EQ((own ? pair.client : pair.server)->Listen(ListenAddress(GetParam())).status().code(),
              StatusCode::kFailedPrecondition);
  }
}

// Its end is told, and its place is free again.
TEST_P(EngineEnds, AConnectionThatEndsWhileItBeginsIsNotKept) {
  EngineSink server_sink;
  EngineSink client_sink;
  client_sink.on_connected = [&](Connection& connection) {
    if (client_sink.connected == 1) std::thread([&] { connection.Close(); }).join();
  };
  EngineOptions options = Options();
  options.max_peers = 1;
  auto server = MakeEngine(Options("server"), &server_sink);
  auto client = MakeEngine(options, &client_sink);
  auto address = server->Listen(ListenAddress(GetParam()));
  ASSERT_TRUE(address.ok()) << address.status().message();
  EXPECT_EQ(client->Connect(*address, Patience()).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(client_sink.closed_count(), 1u);
  auto second = client->Connect(*address, Patience());
  ASSERT_TRUE(second.ok()) << second.status().message();
  ASSERT_TRUE((*second)->Send(User("it works"), Patience()).ok());
  EXPECT_TRUE(Eventually([&] { return server_sink.messages == 1; }));
}

INSTANTIATE_TEST_SUITE_P(On, EngineEnds, ::testing::ValuesIn(Subjects()), SubjectName);

}  // namespace
}  // namespace rdmabatch::testing
