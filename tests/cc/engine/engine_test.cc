// What an engine promises, on every transport.
#include "tf_rdmabatch/cc/engine/engine.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tests/cc/engine/engine_harness.h"

namespace rdmabatch::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(On, EngineTest, ::testing::ValuesIn(Subjects()), SubjectName);

TEST_P(EngineTest, ManyConnections) {
  EngineSink server_sink;
  auto server = MakeEngine(Options("server"), &server_sink);
  ASSERT_NE(server, nullptr);
  auto address = server->Listen(ListenAddress(GetParam()));
  ASSERT_TRUE(address.ok());
  constexpr int kClients = 12;
  EngineSink sink;
  std::vector<std::unique_ptr<Engine>> clients;
  std::vector<std::shared_ptr<Connection>> connections;
  for (int i = 0; i < kClients; ++i) {
    if (i % 4 == 0) clients.push_back(MakeEngine(Options(), &sink));
    auto connection = clients.back()->Connect(*address, Patience());
    ASSERT_TRUE(connection.ok()) << connection.status().message();
    connections.push_back(*connection);
  }
  for (int m = 0; m < 50; ++m) {
    for (const auto& connection : connections) {
      ASSERT_TRUE(connection->Send(User("to the server"), Patience()).ok());
    }
  }
  EXPECT_TRUE(Eventually([&] { return server_sink.messages == 50 * kClients; }));
  EXPECT_TRUE(Eventually([&] { return server->connections().size() == kClients; }));
  clients.clear();
  EXPECT_TRUE(Eventually([&] { return server->connections().empty(); }));
  EXPECT_TRUE(Eventually([&] { return server_sink.closed_count() == kClients; }));
}

TEST_P(EngineTest, TheOneThatConnectsMayStartFirst) {
  EngineSink sink;
  auto client = MakeEngine(Options(), &sink);
  auto server = MakeEngine(Options("server"), &sink);
  ASSERT_TRUE(client != nullptr && server != nullptr);
  std::string address;
  {
    auto brief = MakeEngine(Options("brief"), &sink);
    auto bound = brief->Listen(ListenAddress(GetParam()));
    ASSERT_TRUE(bound.ok());
    address = *bound;
  }
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_TRUE(server->Listen(address).ok());
  });
  auto connection = client->Connect(address, Patience());
  late.join();
  ASSERT_TRUE(connection.ok()) << connection.status().message();
  EXPECT_EQ((*connection)->peer().name, "server");
}

TEST_P(EngineTest, TheOneThatListensMaySendAsSoonAsItSeesThePeer) {
  for (int round = 0; round < 50; ++round) {
    EngineSink server_sink;
    EngineSink client_sink;
    auto server = MakeEngine(Options("server"), &server_sink);
    auto client = MakeEngine(Options(), &client_sink);
    ASSERT_TRUE(server != nullptr && client != nullptr);
    auto address = server->Listen(ListenAddress(GetParam()));
    ASSERT_TRUE(address.ok());
    std::thread eager([&] {
      for (const Deadline deadline = Patience(); !deadline.expired();) {
        const auto connections = server->connections();
        if (connections.empty()) continue;
        EXPECT_TRUE(connections[0]->Send(User("welcome"), Patience()).ok());
        return;
      }
      ADD_FAILURE() << "no connection";
    });
    auto connection = client->Connect(*address, Patience());
    eager.join();
    ASSERT_TRUE(connection.ok()) << connection.status().message();
    ASSERT_TRUE(Eventually([&] { return client_sink.messages == 1; }));
  }
}

TEST_P(EngineTest, AHeadThatDoesNotFitInASlotIsRefused) {
  EngineOptions options = Options();
  options.slot_bytes = 256;
  EnginePair pair;
  ASSERT_NO_FATAL_FAILURE(pair.Start(GetParam(), options));
  const std::string head(230, 'h');
  const std::string body(1000, 'b');
  OutgoingMessage message = User(body);
  message.head = {reinterpret_cast<const uint8_t*>(head.data()), head.size()};
  EXPECT_EQ(pair.connection->Send(message, Patience()).code(), StatusCode::kInvalidArgument);
  message.head = message.head.first(100);
  EXPECT_TRUE(pair.connection->Send(message, Patience()).ok());
  EXPECT_TRUE(Eventually([&] { return pair.server_sink.messages == 1; }));
}

TEST_P(EngineTest, NobodyListens) {
  EngineSink sink;
  auto client = MakeEngine(Options(), &sink);
  ASSERT_NE(client, nullptr);
  auto connection = client->Connect(LocalIp(GetParam().transport) + ":9", Deadline::After(0.2));
  EXPECT_FALSE(connection.ok());
}

TEST_P(EngineTest, AWrongTokenIsRefusedAndOthersGoOn) {
  EnginePair pair;
  ASSERT_NO_FATAL_FAILURE(pair.Start(GetParam(), Options()));
  EngineOptions options = Options("intruder");
  options.token = "guessed";
  EngineSink sink;
  auto intruder = MakeEngine(options, &sink);
  ASSERT_NE(intruder, nullptr);
  auto refused = intruder->Connect(pair.address, Patience());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(Eventually([&] { return pair.server->counters().refused == 1; }));
  EXPECT_EQ(pair.server_sink.connected, 1);
  EXPECT_EQ(sink.connected, 0);
  ASSERT_TRUE(pair.connection->Send(User("still here"), Patience()).ok());
  EXPECT_TRUE(Eventually([&] { return pair.server_sink.messages == 1; }));
}

TEST_P(EngineTest, APortInUse) {
  EnginePair pair;
  ASSERT_NO_FATAL_FAILURE(pair.Start(GetParam(), Options()));
  auto again = pair.client->Listen(pair.address);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.status().code(), StatusCode::kAlreadyExists);
}

TEST_P(EngineTest, MorePeersThanAllowedAreRefused) {
  EngineOptions options = Options();
  options.max_peers = 1;
  EnginePair pair;
  ASSERT_NO_FATAL_FAILURE(pair.Start(GetParam(), options));
  EngineSink sink;
  auto other = MakeEngine(Options("other"), &sink);
  EXPECT_FALSE(other->Connect(pair.address, Patience()).ok());
  EXPECT_TRUE(Eventually([&] { return pair.server->counters().refused == 1; }));
}

TEST_P(EngineTest, ManyThreadsMaySendLargeMessages) {
  EnginePair pair;
  EngineOptions options = Options();
  options.queue_pairs = 2;
  ASSERT_NO_FATAL_FAILURE(pair.Start(GetParam(), options));
  constexpr int kThreads = 100;
  const std::string large(20000, 'x');
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      if (!pair.connection->Send(User(large), Patience()).ok()) ++failures;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_TRUE(Eventually([&] { return pair.server_sink.messages == kThreads; }));
}

TEST_P(EngineTest, ALargeMessageIsPutTogether) {
  EnginePair pair;
  std::string got;
  std::atomic<bool> there{false};
  pair.server_sink.on_message = [&](Connection&, const IncomingMessage& message) {
    EXPECT_FALSE(message.holdable);
    EXPECT_EQ(message.tag, 5u);
    got.assign(message.payload.begin(), message.payload.end());
    there = true;
    return Disposition::kDone;
  };
  EngineOptions options = Options();
  options.max_message_bytes = 1 << 20;
  ASSERT_NO_FATAL_FAILURE(pair.Start(GetParam(), options));
  std::string large(1 << 20, '\0');
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 31 >> 3);
  const std::string head = large.substr(0, 100);
  const std::string body = large.substr(100);
  OutgoingMessage message = User(body, 5);
  message.head = {reinterpret_cast<const uint8_t*>(head.data()), head.size()};
  ASSERT_TRUE(pair.connection->Send(message, Patience()).ok());
  ASSERT_TRUE(Eventually([&] { return there.load(); }));
  EXPECT_EQ(got, large);
  EXPECT_EQ(pair.connection->Send(User(large + "x"), Patience()).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(pair.connection->TrySend(User(body)).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(pair.connection->closed());
}

TEST_P(EngineTest, RegionsAreReadAndWrittenWithinTheirBounds) {
  EnginePair pair;
  ASSERT_NO_FATAL_FAILURE(pair.Start(GetParam(), Options()));
  constexpr uint64_t kBytes = 256 << 10;
  auto local = pair.client->Allocate(kBytes, Access::kLocal);
  auto readable = pair.server->Allocate(kBytes, Access::kRemoteRead);
  auto writable = pair.server->Allocate(kBytes, Access::kRemoteWrite);
  auto hidden = pair.server->Allocate(kBytes, Access::kLocal);
  ASSERT_TRUE(local.ok() && readable.ok() && writable.ok() && hidden.ok());
  EXPECT_EQ(pair.servers()->Export(**hidden).status().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(pair.connection->Export(**readable).status().code(), StatusCode::kInvalidArgument);
  auto read_descriptor = pair.servers()->Export(**readable);
  auto write_descriptor = pair.servers()->Export(**writable);
  ASSERT_TRUE(read_descriptor.ok() && write_descriptor.ok());
  auto source = pair.connection->Import(*read_descriptor);
  auto target = pair.connection->Import(*write_descriptor);
  ASSERT_TRUE(source.ok() && target.ok());
  EXPECT_EQ(pair.connection->Import("garbage").status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(pair.connection->Import(*read_descriptor + "x").status().code(), StatusCode::kDataLoss);

  Fill((*readable)->data(), kBytes, 1);
  const RegionTransfer reads[] = {{local->get(), 0, &*source, 0, kBytes / 2},
                                  {local->get(), kBytes / 2, &*source, kBytes / 2, kBytes / 2}};
  ASSERT_TRUE(pair.connection->Read(reads, Patience()).ok());
  EXPECT_TRUE(Holds((*local)->data(), kBytes, 1));
  Fill((*local)->data(), kBytes, 2);
  const RegionTransfer writes[] = {{local->get(), 0, &*target, 0, kBytes}};
  ASSERT_TRUE(pair.connection->Write(writes, Patience()).ok());
  // What is sent next comes after what was written.
  ASSERT_TRUE(pair.connection->Send(User("written"), Patience()).ok());
  ASSERT_TRUE(Eventually([&] { return pair.server_sink.messages == 1; }));
  EXPECT_TRUE(Holds((*writable)->data(), kBytes, 2));
  EXPECT_EQ(pair.connection->counters().bytes_read, kBytes);
  EXPECT_EQ(pair.connection->counters().bytes_written, kBytes);

  const uint64_t huge = ~uint64_t{0};
  for (const auto& [local_offset, remote_offset, bytes] :
       std::vector<std::tuple<uint64_t, uint64_t, uint64_t>>{{0, 0, kBytes + 1},
                                                             {1, 0, kBytes},
                                                             {0, 1, kBytes},
                                                             {kBytes, 0, 1},
                                                             {0, kBytes, 1},
                                                             {huge, 0, 2},
                                                             {0, huge, 2},
                                                             {0, 0, huge}}) {
    const RegionTransfer bad[] = {{local->get(), local_offset, &*target, remote_offset, bytes}};
    EXPECT_EQ(pair.connection->Read(bad, Patience()).code(), StatusCode::kOutOfRange);
    EXPECT_EQ(pair.connection->Write(bad, Patience()).code(), StatusCode::kOutOfRange);
  }
  const RegionTransfer forbidden[] = {{local->get(), 0, &*source, 0, 8}};
  EXPECT_EQ(pair.connection->Write(forbidden, Patience()).code(), StatusCode::kPermissionDenied);
  const RegionTransfer foreign[] = {{readable->get(), 0, &*source, 0, 8}};
  EXPECT_EQ(pair.connection->Read(foreign, Patience()).code(), StatusCode::kInvalidArgument);
  const RegionTransfer nothing[] = {{nullptr, 0, &*source, 0, 8}};
  EXPECT_EQ(pair.connection->Read(nothing, Patience()).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(pair.connection->closed());
}

TEST_P(EngineTest, AnIdleEngineUsesNoProcessor) {
  EnginePair pair;
  ASSERT_NO_FATAL_FAILURE(pair.Start(GetParam(), Options()));
  ASSERT_TRUE(pair.connection->Send(User("awake"), Patience()).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  // Not getrusage: where time is accounted in ticks, one is more than all that is allowed here.
  const auto used = [] {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
  };
  // A second that something else disturbed is tried again; an engine that works would do so always.
  double least = 1e6;
  for (int i = 0; i < 3 && least > 5000; ++i) {
    const double before = used();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    least = std::min(least, used() - before);
  }
  EXPECT_LT(least, kSanitized ? 50000 : 5000) << "microseconds";
}

TEST_P(EngineTest, AForkedCopyRefusesAndTheParentGoesOn) {
  EnginePair pair;
  ASSERT_NO_FATAL_FAILURE(pair.Start(GetParam(), Options()));
  const pid_t pid = fork();
  if (pid == 0) {
    const bool refused =
        pair.client->Connect(pair.address, Deadline::After(1)).status().code() ==
            StatusCode::kFailedPrecondition &&
        pair.client->Listen("127.0.0.1:0").status().code() == StatusCode::kFailedPrecondition &&
        pair.client->Allocate(4096, Access::kLocal).status().code() ==
            StatusCode::kFailedPrecondition;
    pair.client->Shutdown();
    pair.client.reset();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  ASSERT_TRUE(pair.connection->Send(User("after the fork"), Patience()).ok());
  EXPECT_TRUE(Eventually([&] { return pair.server_sink.messages == 1; }));
}

TEST_P(EngineTest, CountersOfAClosedConnectionStayAndAreReset) {
  EnginePair pair;
  ASSERT_NO_FATAL_FAILURE(pair.Start(GetParam(), Options()));
  ASSERT_TRUE(pair.connection->Send(User("counted"), Patience()).ok());
  ASSERT_TRUE(Eventually([&] { return pair.server_sink.messages == 1; }));
  pair.connection->Close();
  EXPECT_EQ(pair.client->counters().messages_sent, 1u);
  EXPECT_EQ(pair.server->counters().messages_received, 1u);
  pair.client->ResetCounters();
  EXPECT_EQ(pair.client->counters().messages_sent, 0u);
}

TEST(EngineOptionsTest, WhatIsWrongIsNamed) {
  EngineSink sink;
  const std::pair<std::string, std::function<void(EngineOptions*)>> cases[] = {
      {"token", [](EngineOptions* o) { o->token.clear(); }},
      {"pigeon", [](EngineOptions* o) { o->transport = "pigeon"; }},
      {"slots", [](EngineOptions* o) { o->slots = 65; }},
      {"slot_bytes", [](EngineOptions* o) { o->slot_bytes = 100; }},
      {"queue_pairs", [](EngineOptions* o) { o->queue_pairs = 17; }},
      {"max_batch", [](EngineOptions* o) { o->max_batch = 0; }},
      {"handshake_timeout_s", [](EngineOptions* o) { o->handshake_timeout_s = 0; }},
  };
  for (const auto& [name, spoil] : cases) {
    EngineOptions options;
    options.token = "t";
    spoil(&options);
    auto engine = Engine::Create(options, &sink);
    ASSERT_FALSE(engine.ok()) << name;
    EXPECT_EQ(engine.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(engine.status().message().find(name), std::string::npos) << engine.status().message();
  }
}

}  // namespace
}  // namespace rdmabatch::testing
