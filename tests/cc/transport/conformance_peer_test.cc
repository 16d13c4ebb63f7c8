// What every transport must do with peers: many of them, bad ones, and those that go away.
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "tests/cc/transport/harness.h"

namespace rdmabatch::testing {
namespace {

using ConformancePeer = TransportTest;

// Waits until the endpoint says, in either way, that it is broken. As an engine does: control
// descriptor, completions.
bool PerceivesTheEnd(Side* side, double seconds) {
  Completion completions[16];
  for (const Deadline deadline = Deadline::After(seconds); !deadline.expired();) {
    if (side->endpoint->control_fd() >= 0) {
      pollfd entry{side->endpoint->control_fd(), POLLIN, 0};
      if (poll(&entry, 1, 10) > 0 && !side->endpoint->CheckControl().ok()) return true;
    }
    for (size_t n = side->endpoint->PollSend(completions); n > 0; --n) {
      if (!completions[n - 1].ok) return true;
    }
    for (size_t n = side->transport->PollReceive(completions); n > 0; --n) {
      if (!completions[n - 1].ok) return true;
    }
  }
  return false;
}

// A broken endpoint accepts nothing and reports its end at most once.
void ExpectBroken(Side* side) {
  Completion completions[16];
  size_t failures = 0;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(side->endpoint->Post(Chain({side->WriteImm(0, 0, 8, 1)})), 0u);
    for (size_t n = side->endpoint->PollSend(completions); n > 0; --n) {
      if (completions[n - 1].ok) continue;
      ++failures;
      EXPECT_NE(completions[n - 1].error, nullptr);
    }
  }
  EXPECT_LE(failures, 1u);
}

// Accepts; answers each of the messages that its peer sends after verifying it.
const PeerRole kAnswer("answer", [](PeerProcess::Link* link, const Subject& subject) {
  Side side;
  side.transport = NewTransport(subject);
  if (side.transport == nullptr) return 1;
  side.Register();
  Fill(side.published.local.address, 4096, 11);
  EndpointOptions options;
  options.counters = side.counters.get();
  if (!AcceptOver(link, LocalIp(subject.transport), options, &side)) return 2;
  for (uint32_t i = 0; i < 200; ++i) {
    const auto arrivals = side.TakeArrivals(1, Patience());
    if (arrivals.size() != 1 || !arrivals[0].ok || arrivals[0].immediate != i) return 3;
    if (!Holds(side.arena.local.address, 2000, i)) return 4;
    if (!side.PostAll(Chain({side.WriteImm(0, 0, 0, i)}), Patience())) return 5;
  }
  for (pollfd entry{link->fd(), POLLIN, 0}; poll(&entry, 1, 0) == 0;) side.Poll();
  std::string end;
  return link->Get(&end) && end == "end" ? 0 : 6;
});

TEST_P(ConformancePeer, WorksAcrossProcesses) {
  PeerProcess peer("answer", GetParam());
  Side side;
  side.transport = NewTransport();
  ASSERT_NE(side.transport, nullptr);
  side.Register();
  EndpointOptions options = Options(8);
  options.counters = side.counters.get();
  ASSERT_TRUE(ConnectOver(&peer.link(), options, &side));
  for (uint32_t i = 0; i < 200; ++i) {
    Fill(side.staging.local.address, 2000, i);
    ASSERT_TRUE(
        side.PostAll(Chain({side.Write(0, 0, 2000), side.WriteImm(0, 0, 0, i)}), Patience()));
    const auto arrivals = side.TakeArrivals(1, Patience());
    ASSERT_EQ(arrivals.size(), 1u);
    EXPECT_EQ(arrivals[0].immediate, i);
    ASSERT_EQ(side.TakeSends(1, Patience()).size(), 1u);
  }
  ASSERT_TRUE(side.PostAll(Chain({side.Read(0, 0, 4096)}), Patience()));
  ASSERT_EQ(side.TakeSends(1, Patience()).size(), 1u);
  EXPECT_TRUE(Holds(side.staging.local.address, 4096, 11));
  ASSERT_TRUE(peer.link().Put("end"));
  EXPECT_EQ(peer.Wait(), 0);
}

// Accepts, and sleeps until it is killed.
const PeerRole kSleep("sleep", [](PeerProcess::Link* link, const Subject& subject) {
  Side side;
  side.transport = NewTransport(subject);
  if (side.transport == nullptr) return 1;
  side.Register();
  EndpointOptions options;
  options.counters = side.counters.get();
  if (!AcceptOver(link, LocalIp(subject.transport), options, &side)) return 2;
  std::string never;
  link->Get(&never);
  return 3;
});

// Killed with `outstanding` chains on their way to it.
void KillAPeer(const Subject& subject, uint32_t outstanding) {
  PeerProcess peer("sleep", subject);
  Side side;
  side.transport = NewTransport(subject);
  ASSERT_NE(side.transport, nullptr);
  side.Register();
  EndpointOptions options;
  options.counters = side.counters.get();
  ASSERT_TRUE(ConnectOver(&peer.link(), options, &side));
  ASSERT_TRUE(side.endpoint->CheckControl().ok());
  for (uint32_t i = 0; i < outstanding; ++i) {
    ASSERT_EQ(side.endpoint->Post(Chain({side.Write(0, 0, 4096), side.WriteImm(0, 0, 8, i)})), 2u);
  }
  peer.Kill();
  EXPECT_TRUE(PerceivesTheEnd(&side, kPatience));
  side.endpoint->Close();
  ExpectBroken(&side);
}

TEST_P(ConformancePeer, AKilledPeerIsPerceivedByAnIdleOne) { KillAPeer(GetParam(), 0); }

TEST_P(ConformancePeer, AKilledPeerIsPerceivedByABusyOne) { KillAPeer(GetParam(), 20); }

TEST_P(ConformancePeer, APeerThatClosesIsPerceived) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  pair.a.endpoint->Close();
  pair.a.endpoint->Close();
  ExpectBroken(&pair.a);
  EXPECT_TRUE(PerceivesTheEnd(&pair.b, kPatience));
  pair.b.endpoint->Close();
  ExpectBroken(&pair.b);
}

TEST_P(ConformancePeer, APeerThatIsDestroyedIsPerceived) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  pair.b.endpoint.reset();
  EXPECT_TRUE(PerceivesTheEnd(&pair.a, kPatience));
}

TEST_P(ConformancePeer, ConnectsAgainAfterAClose) {
  Pair pair;
  for (int i = 0; i < 3; ++i) {
    ASSERT_NO_FATAL_FAILURE(Connect(&pair));
    ASSERT_TRUE(pair.a.PostAll(Chain({pair.a.WriteImm(0, 0, 8, 1)}), Patience()));
    ASSERT_EQ(pair.b.TakeArrivals(1, Patience()).size(), 1u);
    pair.a.endpoint.reset();
    pair.b.endpoint.reset();
  }
}

TEST_P(ConformancePeer, AcceptGivesUp) {
  auto transport = NewTransport();
  ASSERT_NE(transport, nullptr);
  auto acceptor = transport->Listen(LocalIp(GetParam().transport));
  ASSERT_TRUE(acceptor.ok()) << acceptor.status().message();
  Counters counters;
  EndpointOptions options = Options();
  options.counters = &counters;
  auto endpoint = (*acceptor)->Accept(options, Deadline::After(0.2));
  ASSERT_FALSE(endpoint.ok());
  EXPECT_EQ(endpoint.status().code(), StatusCode::kDeadlineExceeded) << endpoint.status().message();
}

TEST_P(ConformancePeer, GarbageOffersAreRefused) {
  auto transport = NewTransport();
  ASSERT_NE(transport, nullptr);
  auto acceptor = transport->Listen(LocalIp(GetParam().transport));
  ASSERT_TRUE(acceptor.ok());
  const std::string offer = (*acceptor)->offer();
  Counters counters;
  EndpointOptions options = Options();
  options.counters = &counters;
  std::vector<std::string> offers = {"", "x", offer + "x", std::string(300, '\0'),
                                     std::string(1 << 16, 'x')};
  for (size_t length = 0; length < offer.size(); ++length)
    offers.push_back(offer.substr(0, length));
  for (const std::string& bad : offers) {
    auto endpoint = transport->Connect(bad, options, Deadline::After(0.1));
    ASSERT_FALSE(endpoint.ok());
    EXPECT_EQ(endpoint.status().code(), StatusCode::kDataLoss) << endpoint.status().message();
  }
  std::mt19937 random(6);
  // Parses or not: returns. Soft-iWARP calls an unreachable host for 10 s, and cannot be stopped.
  for (int i = 0; i < (IsShm() ? 50 : 4); ++i) {
    std::string bad = offer;
    bad[random() % bad.size()] ^= static_cast<char>(1 + random() % 255);
    EXPECT_FALSE(transport->Connect(bad, options, Deadline::After(0.05)).ok());
  }
}

TEST_P(ConformancePeer, GarbageDescriptorsAreRefused) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  auto descriptor = pair.b.endpoint->Export(pair.b.arena.local);
  ASSERT_TRUE(descriptor.ok());
  std::vector<std::string> bad = {"", "x", *descriptor + "x", std::string(1 << 16, '\0')};
  for (size_t length = 0; length < descriptor->size(); ++length)
    bad.push_back(descriptor->substr(0, length));
  for (const std::string& bytes : bad) {
    auto imported = pair.a.endpoint->Import(bytes);
    ASSERT_FALSE(imported.ok());
    EXPECT_EQ(imported.status().code(), StatusCode::kDataLoss) << imported.status().message();
  }
  std::mt19937 random(7);
  uint32_t accepted = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = *descriptor;
    for (uint32_t changes = 1 + random() % 4; changes > 0; --changes) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (bytes == *descriptor) continue;
    auto imported = pair.a.endpoint->Import(bytes);
    if (IsShm() && imported.ok()) {  // it became the descriptor of another region
      ++accepted;
      ASSERT_EQ(imported->bytes, kArenaBytes);
    }
  }
  EXPECT_LT(accepted, 30u);
  auto imported = pair.a.endpoint->Import(*descriptor);
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->bytes, kArenaBytes);
  ASSERT_TRUE(pair.a.PostAll(Chain({pair.a.WriteImm(0, 0, 8, 3)}), Patience()));
  EXPECT_EQ(pair.b.TakeArrivals(1, Patience()).size(), 1u);
}

TEST_P(ConformancePeer, LocalMemoryIsNotExported) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  EXPECT_EQ(pair.a.endpoint->Export(pair.a.staging.local).status().code(),
            StatusCode::kInvalidArgument);
}

// Sixteen endpoints between two transports.
class Crowd {
 public:
  static constexpr uint32_t kSize = 16;
  Pair pairs[kSize];
};

TEST_P(ConformancePeer, ManyEndpointsAreServedFairly) {
  constexpr uint32_t kEach = 64;
  Crowd crowd;
  const auto from = NewTransport();
  const auto to = NewTransport();
  for (uint32_t i = 0; i < Crowd::kSize; ++i) {
    Pair& pair = crowd.pairs[i];
    pair.a.transport = from;
    pair.b.transport = to;
    pair.a.Register(1 << 16);
    pair.b.Register(1 << 16);
    ASSERT_NO_FATAL_FAILURE(Connect(&pair, Options(100 + i), Options(200 + i)));
  }
  for (uint32_t sent = 0; sent < kEach; sent += 4) {
    for (Pair& pair : crowd.pairs) {
      std::vector<WorkRequest> chain;
      for (uint32_t i = sent; i < sent + 4; ++i) chain.push_back(pair.a.WriteImm(0, 0, 8, i, i));
      ASSERT_TRUE(pair.a.PostAll(Chain(chain), Patience()));
    }
  }
  uint32_t taken[Crowd::kSize] = {};
  const auto take_half = [&] {
    for (uint32_t total = 0; total < Crowd::kSize * kEach / 2; total += 8) {
      const auto arrivals = crowd.pairs[0].b.TakeArrivals(8, Patience());
      ASSERT_EQ(arrivals.size(), 8u);
      for (const Completion& arrival : arrivals) {
        ASSERT_TRUE(arrival.ok);
        ASSERT_GE(arrival.id, 200u);
        ASSERT_LT(arrival.id, 200u + Crowd::kSize);
        EXPECT_EQ(arrival.immediate, taken[arrival.id - 200]++) << "order within an endpoint";
      }
    }
  };
  ASSERT_NO_FATAL_FAILURE(take_half());
  for (uint32_t count : taken) EXPECT_GE(count, kEach / 4);
  ASSERT_NO_FATAL_FAILURE(take_half());
  for (uint32_t count : taken) EXPECT_EQ(count, kEach);
}

TEST_P(ConformancePeer, EndpointsComeAndGoWhileOthersArePolled) {
  const int rounds = IsShm() ? 100 : 5;
  const auto from = NewTransport();
  const auto to = NewTransport();
  ASSERT_NE(from, nullptr);
  ASSERT_NE(to, nullptr);
  Pair steady;
  steady.a.transport = from;
  steady.b.transport = to;
  ASSERT_NO_FATAL_FAILURE(Connect(&steady));
  std::atomic<bool> stop{false};
  std::atomic<uint32_t> perceived{0};
  std::thread progress([&] {
    Completion arrivals[32];
    while (!stop) {
      const size_t n = to->PollReceive(arrivals);
      for (size_t i = 0; i < n; ++i) perceived += arrivals[i].id == 2 && arrivals[i].ok;
      if (n == 0) {
        to->PrepareSleep();
        to->FinishSleep();
        std::this_thread::yield();
      }
    }
  });
  bool posted = true;
  for (int i = 0; i < rounds && posted; ++i) {
    Pair pair;
    pair.a.transport = from;
    pair.b.transport = to;
    pair.a.Register(1 << 12);
    pair.b.Register(1 << 12);
    Connect(&pair, Options(50), Options(60));
    if (HasFatalFailure()) break;
    posted = pair.a.PostAll(Chain({pair.a.WriteImm(0, 0, 8, 1)}), Patience()) &&
             steady.a.PostAll(Chain({steady.a.WriteImm(0, 0, 8, 1)}), Patience()) &&
             steady.a.TakeSends(1, Patience()).size() == 1;
    if (i % 2 == 0) pair.b.endpoint.reset();
  }
  const Deadline deadline = Patience();
  while (perceived < static_cast<uint32_t>(rounds) && !deadline.expired())
    std::this_thread::yield();
  stop = true;
  progress.join();
  EXPECT_TRUE(posted);
  EXPECT_EQ(perceived, static_cast<uint32_t>(rounds));
}

TEST_P(ConformancePeer, EndpointsMayOutliveTheirPolling) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  ASSERT_TRUE(pair.a.PostAll(Chain({pair.a.WriteImm(0, 0, 8, 1)}), Patience()));
  pair.a.endpoint.reset();  // nobody polls either transport: this must not wait for it
  pair.b.endpoint.reset();
  Completion arrivals[4];
  EXPECT_EQ(pair.b.transport->PollReceive(arrivals), 0u);
}

INSTANTIATE_TEST_SUITE_P(Transports, ConformancePeer, ::testing::ValuesIn(Subjects()), SubjectName);

}  // namespace
}  // namespace rdmabatch::testing
