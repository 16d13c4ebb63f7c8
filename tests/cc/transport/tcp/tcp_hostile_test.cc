// What a peer, or somebody who is none, can do to the tcp transport: lose its own connection.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/cc/transport/tcp/raw_peer.h"
#include "tf_rdmabatch/cc/base/wait_for.h"

namespace rdmabatch::tcp {
namespace {

using testing::Chain;
using testing::Patience;

TEST(TcpHostile, StrangersDoNotTakeThePlaceOfThePeer) {
  testing::Side side;
  testing::Side other;
  side.transport = testing::NewTransport({"tcp", ""});
  other.transport = testing::NewTransport({"tcp", ""});
  auto acceptor = side.transport->Listen("127.0.0.1");
  ASSERT_TRUE(acceptor.ok());
  const Offer offer = OfferOf((*acceptor)->offer());
  EndpointOptions options;
  options.counters = side.counters.get();
  EndpointOptions others;
  others.counters = other.counters.get();
  Result<std::unique_ptr<Endpoint>> accepted = Status(StatusCode::kInternal, "not accepted");
  std::thread accepting([&] { accepted = (*acceptor)->Accept(options, Patience()); });
  std::vector<UniqueFd> strangers;
  Greeting wrong;
  wrong.queue_depth = 1;
  wrong.secret = offer.accept_secret;
  for (int i = 0; i < 40; ++i) {  // more than have a place; most say nothing
    strangers.push_back(ConnectRaw(offer));
    const std::string greetings[] = {"", Pack(wrong), "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
                                     Pack(wrong).substr(0, 20)};
    const std::string& bytes = greetings[i % 4];
    (void)send(strangers.back().get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  auto connected = other.transport->Connect((*acceptor)->offer(), others, Patience());
  accepting.join();
  EXPECT_TRUE(connected.ok()) << connected.status().message();
  EXPECT_TRUE(accepted.ok()) << accepted.status().message();
}

TEST(TcpHostile, WhoeverTookThePortIsNotTakenForThePeer) {
  auto transport = testing::NewTransport({"tcp", ""});
  auto acceptor = transport->Listen("127.0.0.1");
  ASSERT_TRUE(acceptor.ok());
  Offer offer = OfferOf((*acceptor)->offer());
  auto listener = ListenAt("127.0.0.1", PortRange{});
  ASSERT_TRUE(listener.ok() && FillAddress(listener->get(), &offer).ok());
  UniqueFd accepted;
  std::thread impostor([&] {
    WaitFor(listener->get(), POLLIN, Patience());
    auto socket = AcceptFrom(listener->get());
    if (!socket.ok() || !socket->valid()) return;
    accepted = std::move(*socket);
    Greeting greeting;
    greeting.queue_depth = 1;
    greeting.secret = offer.connect_secret;
    (void)SendAll(accepted.get(), Pack(greeting));
  });
  Counters counters;
  EndpointOptions options;
  options.counters = &counters;
  auto endpoint = transport->Connect(Pack(offer), options, Patience());
  impostor.join();
  EXPECT_EQ(endpoint.status().code(), StatusCode::kPermissionDenied) << endpoint.status().message();
}

// A listener whose queue is full drops what comes, as a firewall does.
TEST(TcpHostile, APortAtWhichNothingAnswersIsNamed) {
  auto transport = testing::NewTransport({"tcp", ""});
  auto acceptor = transport->Listen("127.0.0.1");
  ASSERT_TRUE(acceptor.ok());
  Offer offer = OfferOf((*acceptor)->offer());
  auto listener = ListenAt("127.0.0.1", PortRange{});
  ASSERT_TRUE(listener.ok() && FillAddress(listener->get(), &offer).ok());
  ASSERT_EQ(listen(listener->get(), 0), 0);
  const UniqueFd only = ConnectRaw(offer);
  Counters counters;
  EndpointOptions options;
  options.counters = &counters;
  const Status failed = transport->Connect(Pack(offer), options, Deadline::After(0.3)).status();
  EXPECT_EQ(failed.code(), StatusCode::kUnavailable);
  for (const std::string& part : {"port " + std::to_string(offer.port), std::string("firewall")}) {
    EXPECT_NE(failed.message().find(part), std::string::npos) << failed.message();
  }
}

struct Attack {
  const char* name;
  const char* error;  // a part of it
  std::function<void(RawPeer*)> run;
};

Frame Of(FrameType type, uint32_t length, uint32_t immediate = 0) {
  Frame frame;
  frame.type = type;
  frame.length = length;
  frame.immediate = immediate;
  return frame;
}

const Attack kAttacks[] = {
    {"Garbage", "no frame", [](RawPeer* p) { p->Send(std::string(100, 'x')); }},
    {"Zeros", "no frame", [](RawPeer* p) { p->Send(std::string(100, '\0')); }},
    {"EmptyWrite", "no frame", [](RawPeer* p) { p->Send(RawPeer::Write(p->arena, 0, 0)); }},
    {"BeyondTheEnd", "outside a region",
     [](RawPeer* p) { p->Send(RawPeer::Write(p->arena, p->arena.bytes - 7, 8), "12345678"); }},
    {"LargeBeyondTheEnd", "outside a region",
     [](RawPeer* p) {
       p->Send(RawPeer::Write(p->arena, 8, static_cast<uint32_t>(p->arena.bytes)));
     }},
    {"OffsetThatWraps", "outside a region",
     [](RawPeer* p) { p->Send(RawPeer::Write(p->arena, ~uint64_t{0} - 3, 8), "12345678"); }},
    {"UnknownRegion", "outside a region",
     [](RawPeer* p) {
       Region other = p->arena;
       other.id += 2;
       p->Send(RawPeer::Write(other, 0, 8), "12345678");
     }},
    {"WriteToReadable", "outside a region",
     [](RawPeer* p) { p->Send(RawPeer::Write(p->published, 0, 8), "12345678"); }},
    {"ReadOfWritable", "outside a region",
     [](RawPeer* p) { p->Send(RawPeer::Read(p->arena, 0, 8)); }},
    {"ReadBeyondTheEnd", "outside a region",
     [](RawPeer* p) { p->Send(RawPeer::Read(p->published, p->published.bytes, 1)); }},
    {"TooManyReads", "more reads",
     [](RawPeer* p) {
       std::string all;
       for (uint32_t i = 0; i <= RawPeer::kReads; ++i) {
         const Frame frame = RawPeer::Read(p->published, 0, 4096);
         all.append(reinterpret_cast<const char*>(&frame), sizeof(frame));
       }
       p->Send(all);
     }},
    {"AckOfNothing", "no frame", [](RawPeer* p) { p->Send(Of(FrameType::kAck, 0, 1)); }},
    {"ReplyToNothing", "no frame",
     [](RawPeer* p) { p->Send(Of(FrameType::kReply, 8), "12345678"); }},
    {"RegionGivenUp", "outside a region",
     [](RawPeer* p) {
       p->side.transport->Deregister(p->side.arena.local);
       p->side.arena.local.address = nullptr;
       p->Send(RawPeer::Write(p->arena, 0, 8), "12345678");
     }},
};

class TcpAttack : public ::testing::TestWithParam<Attack> {};

TEST_P(TcpAttack, LosesTheConnectionAndTouchesNothing) {
  RawPeer peer;
  ASSERT_FALSE(::testing::Test::HasFailure());
  const std::string before(reinterpret_cast<char*>(peer.side.arena.segment.data()), 64);
  GetParam().run(&peer);
  const std::string failure = peer.Failure();
  EXPECT_NE(failure.find(GetParam().error), std::string::npos) << failure;
  EXPECT_EQ(std::memcmp(peer.side.arena.segment.data(), before.data(), before.size()), 0);
  EXPECT_EQ(peer.side.endpoint->Post(Chain({peer.side.WriteImm(0, 0, 0, 1)})), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, TcpAttack, ::testing::ValuesIn(kAttacks),
                         [](const auto& info) { return info.param.name; });

// Takes what our side sends until it ends the connection.
void Drain(RawPeer* peer) {
  std::string bytes(1 << 20, 0);
  for (const Deadline deadline = Patience(); !deadline.expired();) {
    size_t have = 0;
    if (!ReceiveSome(peer->socket.get(), bytes.data(), bytes.size(), &have).ok()) return;
    peer->side.Poll();
  }
}

// The answer waits behind more than the sockets hold, and its memory goes meanwhile.
TEST(TcpHostile, AnAnswerThatWaitsDoesNotTouchARegionThatWasGivenUp) {
  EndpointOptions options;
  options.send_queue_depth = 32;
  RawPeer peer(options);
  testing::Side& side = peer.side;
  std::vector<WorkRequest> chain(32, side.Write(0, 0, testing::kArenaBytes, 1));
  ASSERT_EQ(side.endpoint->Post(Chain(chain)), chain.size());
  for (const uint32_t bytes : {8, 4096}) peer.Send(RawPeer::Read(peer.published, 0, bytes));
  for (int i = 0; i < 100; ++i) side.Poll();
  side.transport->Deregister(side.published.local);
  side.published.local.address = nullptr;
  side.published.segment = Segment();
  Drain(&peer);
  EXPECT_NE(peer.Failure().find("given up meanwhile"), std::string::npos);
}

}  // namespace
}  // namespace rdmabatch::tcp
