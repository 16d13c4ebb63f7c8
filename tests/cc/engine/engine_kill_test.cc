// A peer that is killed at any moment: every wait on it ends soon with an error that names it, and
// what it cost comes back.
#include <dirent.h>
#include <gtest/gtest.h>

#include "tests/cc/engine/engine_harness.h"

namespace rdmabatch::testing {
namespace {

class EngineKill : public EngineTest {};
INSTANTIATE_TEST_SUITE_P(On, EngineKill, ::testing::ValuesIn(Subjects()), SubjectName);

size_t OpenDescriptors() {
  size_t count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

// Listens, accepts one peer, and from its word on sends or not, until it is killed.
int Victim(PeerProcess::Link* link, const Subject& subject, Disposition disposition, bool sends) {
  EngineSink sink;
  sink.on_message = [disposition](Connection&, const IncomingMessage&) { return disposition; };
  auto engine = Engine::Create(OptionsFor(subject, "victim"), &sink);
  if (!engine.ok()) return 1;
  auto address = (*engine)->Listen(ListenAddress(subject));
  if (!address.ok() || !link->Put(*address)) return 2;
  if (!Eventually([&] { return (*engine)->connections().size() == 1; })) return 3;
  const auto connection = (*engine)->connections()[0];
  std::string go;
  if (!link->Get(&go)) return 4;
  const std::string bytes(3000, 'v');
  while (sends && connection->Send(User(bytes), Patience()).ok()) continue;
  std::string never;
  link->Get(&never);
  return 5;
}

const PeerRole kIdle("engine-idle", [](PeerProcess::Link* link, const Subject& subject) {
  return Victim(link, subject, Disposition::kDone, false);
});
const PeerRole kReceives("engine-receives", [](PeerProcess::Link* link, const Subject& subject) {
  return Victim(link, subject, Disposition::kDone, false);
});
const PeerRole kHolds("engine-holds", [](PeerProcess::Link* link, const Subject& subject) {
  return Victim(link, subject, Disposition::kHold, false);
});
const PeerRole kSends("engine-sends", [](PeerProcess::Link* link, const Subject& subject) {
  return Victim(link, subject, Disposition::kDone, true);
});

void ExpectNamed(const Status& status) {
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.message();
  EXPECT_NE(status.message().find("victim"), std::string::npos) << status.message();
}

// Kills the peer of that role while this side runs `meanwhile` (until it returns a failure).
void KillWhile(const Subject& subject, const std::string& role,
               const std::function<Status(Connection*)>& meanwhile) {
  EngineSink sink;
  auto engine = MakeEngine(OptionsFor(subject, "survivor"), &sink);
  ASSERT_NE(engine, nullptr);
  const size_t descriptors = OpenDescriptors();
  for (int round = 0; round < 2; ++round) {
    PeerProcess peer(role, subject);
    std::string address;
    ASSERT_TRUE(peer.link().Get(&address));
    auto connected = engine->Connect(address, Patience());
    ASSERT_TRUE(connected.ok()) << connected.status().message();
    ASSERT_TRUE(peer.link().Put("go"));
    std::shared_ptr<Connection> connection = *connected;
    Status ended;
    std::thread busy([&] {
      if (meanwhile) ended = meanwhile(connection.get());
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(round == 0 ? 200 : 20));
    peer.Kill();
    EXPECT_TRUE(Eventually([&] { return connection->closed(); }));
    busy.join();
    if (meanwhile) ExpectNamed(ended);
    ExpectNamed(connection->status());
    EXPECT_TRUE(Eventually([&] { return sink.closed_count() == static_cast<size_t>(round) + 1; }));
    ExpectNamed(sink.last_closed());
    EXPECT_TRUE(Eventually([&] { return engine->connections().empty(); }));
    ended = connection->Send(User("to the dead"), Patience());
    ExpectNamed(ended);
    std::weak_ptr<Connection> gone = connection;
    connection.reset();
    connected = Status(StatusCode::kInternal, "let go");
    EXPECT_TRUE(Eventually([&] { return gone.expired(); })) << "its memory comes back";
  }
  EXPECT_TRUE(Eventually([&] { return OpenDescriptors() <= descriptors; }))
      << OpenDescriptors() << " descriptors, " << descriptors << " before";
}

TEST_P(EngineKill, WhileIdle) { KillWhile(GetParam(), "engine-idle", nullptr); }

TEST_P(EngineKill, WhileItReceives) {
  KillWhile(GetParam(), "engine-receives", [](Connection* connection) {
    const std::string bytes(3000, 's');
    Status sent;
    while (sent.ok()) sent = connection->Send(User(bytes), Patience());
    return sent;
  });
}

TEST_P(EngineKill, WhileItSends) { KillWhile(GetParam(), "engine-sends", nullptr); }

TEST_P(EngineKill, WhileASenderWaitsForASlot) {
  KillWhile(GetParam(), "engine-holds", [](Connection* connection) {
    const std::string bytes(4000, 's');
    Status sent;
    while (sent.ok()) sent = connection->Send(User(bytes), Patience());
    return sent;
  });
}

TEST_P(EngineKill, WhileALargeMessageIsOnItsWay) {
  KillWhile(GetParam(), "engine-receives", [](Connection* connection) {
    const std::string bytes(8 << 20, 's');
    Status sent;
    while (sent.ok()) sent = connection->Send(User(bytes), Patience());
    return sent;
  });
}

}  // namespace
}  // namespace rdmabatch::testing
