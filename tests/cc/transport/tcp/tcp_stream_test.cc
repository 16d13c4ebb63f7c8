// The stream of bytes under the tcp transport: it comes in any pieces, ends anywhere, and stops
// when nobody reads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/cc/transport/tcp/raw_peer.h"

namespace rdmabatch::tcp {
namespace {

using testing::Chain;
using testing::Patience;

std::string Bytes(const Frame& frame) {
  return std::string(reinterpret_cast<const char*>(&frame), sizeof(frame));
}

Frame FrameOf(const std::string& bytes) {
  Frame frame;
  std::memcpy(&frame, bytes.data(), sizeof(frame));
  return frame;
}

std::string Pattern(size_t bytes, uint64_t seed) {
  std::string pattern(bytes, 0);
  testing::Fill(reinterpret_cast<uint8_t*>(pattern.data()), bytes, seed);
  return pattern;
}

TEST(TcpWire, RecordsSurviveAndTruncatedOnesDoNot) {
  Offer offer;
  offer.port = 4711;
  offer.address[0] = 127;
  offer.connect_secret.fill(1);
  const std::string bytes = Pack(offer);
  Offer read;
  ASSERT_TRUE(Unpack(bytes, &read));
  EXPECT_EQ(Pack(read), bytes);
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(Unpack(bytes.substr(0, length), &read)) << length;
  }
  EXPECT_FALSE(Unpack(bytes + "x", &read));
  offer.family = 5;
  EXPECT_FALSE(Unpack(Pack(offer), &read));
  offer.family = 4;
  offer.address[15] = 1;  // beyond an IPv4 address
  EXPECT_FALSE(Unpack(Pack(offer), &read));
  offer.family = 6;
  EXPECT_TRUE(Unpack(Pack(offer), &read));
  offer.port = 65536;
  EXPECT_FALSE(Unpack(Pack(offer), &read));
  Greeting greeting;
  EXPECT_FALSE(Unpack(Pack(greeting), &greeting)) << "a queue of depth 0";
  Region region;
  EXPECT_FALSE(Unpack(Pack(region), &region)) << "a region without bytes";
}

TEST(TcpStream, AnyPiecesMakeTheSameFrames) {
  RawPeer peer;
  const std::string small = Pattern(100, 1);
  const std::string large = Pattern(20000, 2);
  const std::string all = Bytes(RawPeer::Write(peer.arena, 64, 100)) + small +
                          Bytes(RawPeer::Write(peer.arena, 4096, 20000)) + large +
                          Bytes(RawPeer::WriteImm(peer.arena, 0, 8, 77)) + "12345678" +
                          Bytes(RawPeer::WriteImm(peer.arena, 0, 0, 78));
  for (size_t piece : {1, 7, 24, 4097}) {
    std::memset(peer.side.arena.segment.data(), 0, 32768);
    for (size_t at = 0; at < all.size(); at += piece) {
      peer.Send(all.substr(at, piece));
      peer.side.Poll();
    }
    const auto arrivals = peer.side.TakeArrivals(2, Patience());
    ASSERT_EQ(arrivals.size(), 2u) << piece;
    EXPECT_EQ(arrivals[0].immediate, 77u);
    EXPECT_EQ(arrivals[1].immediate, 78u);
    const auto* memory = reinterpret_cast<const char*>(peer.side.arena.segment.data());
    EXPECT_EQ(std::string(memory, 8), "12345678");
    EXPECT_EQ(std::string(memory + 64, 100), small);
    EXPECT_EQ(std::string(memory + 4096, 20000), large);
  }
}

TEST(TcpStream, HalfASmallPayloadIsNotThere) {
  RawPeer peer;
  std::memset(peer.side.arena.segment.data(), 0, 64);
  peer.Send(Bytes(RawPeer::WriteImm(peer.arena, 0, 64, 5)) + std::string(63, 'x'));
  for (int i = 0; i < 100; ++i) peer.side.Poll();
  EXPECT_EQ(peer.side.arena.segment.data()[0], 0);
  EXPECT_TRUE(peer.side.arrived.empty());
  peer.Send("x");
  EXPECT_EQ(peer.side.TakeArrivals(1, Patience()).size(), 1u);
  EXPECT_EQ(peer.side.arena.segment.data()[63], 'x');
}

// Ends by a reset where `reset`, else by a close.
void EndWithin(const std::string& bytes, bool reset, const char* error) {
  RawPeer peer;
  peer.Send(bytes.empty()
                ? Bytes(RawPeer::WriteImm(peer.arena, 0, 200000, 9)) + std::string(100000, 'x')
                : bytes);
  for (int i = 0; i < 100; ++i) peer.side.Poll();
  if (reset) {
    const linger now{1, 0};
    setsockopt(peer.socket.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  }
  peer.socket.reset();
  const std::string failure = peer.Failure();
  EXPECT_NE(failure.find(error), std::string::npos) << failure;
  EXPECT_TRUE(peer.side.arrived.empty());
}

TEST(TcpStream, TheEndWithinABlockIsNoArrival) {
  EndWithin("", false, "ended within a message");
  EndWithin("", true, "ended within a message");
  EndWithin(std::string(1, '\1'), false, "ended within a message");
}

TEST(TcpStream, WhatCameBeforeTheEndIsDelivered) {
  RawPeer peer;
  for (uint32_t i = 0; i < 100; ++i) peer.Send(RawPeer::WriteImm(peer.arena, 0, 8, i), "12345678");
  peer.socket.reset();
  const auto arrivals = peer.side.TakeArrivals(100, Patience());
  ASSERT_EQ(arrivals.size(), 100u);
  EXPECT_TRUE(arrivals.back().ok);
  EXPECT_NE(peer.Failure().find("closed the connection or died"), std::string::npos);
}

// The peer does not read: Post takes what the queue holds and returns; nothing is lost.
TEST(TcpStream, ASlowReaderHoldsUpTheSenderAndLosesNothing) {
  constexpr uint32_t kBytes = 1 << 20;
  constexpr uint32_t kDepth = 32;
  EndpointOptions options;
  options.send_queue_depth = kDepth;
  RawPeer peer(options);
  testing::Side& side = peer.side;
  testing::Fill(side.staging.local.address, kBytes, 3);
  std::vector<WorkRequest> chain;
  for (uint32_t i = 0; i < kDepth; ++i) chain.push_back(side.Write(0, 0, kBytes, i));
  size_t posted = side.endpoint->Post(Chain(chain));
  EXPECT_EQ(posted, kDepth);
  for (int i = 0; i < 100; ++i) side.Poll();
  Completion done[4];
  ASSERT_EQ(side.endpoint->PollSend(done), 0u) << "more than the sockets of this host hold";
  EXPECT_EQ(side.endpoint->Post(Chain(chain)), 0u);
  for (uint32_t i = 0; i < kDepth; ++i) {
    const Frame frame = FrameOf(peer.Receive(sizeof(Frame)));
    ASSERT_EQ(frame.type, FrameType::kWrite);
    ASSERT_EQ(frame.length, kBytes);
    const std::string payload = peer.Receive(kBytes);
    ASSERT_TRUE(testing::Holds(reinterpret_cast<const uint8_t*>(payload.data()), kBytes, 3));
  }
  const auto sends = side.TakeSends(1, Patience());
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_EQ(sends[0].id, kDepth - 1);
}

TEST(TcpStream, AcknowledgementsGoWithWhatIsSentNext) {
  RawPeer peer;
  for (uint32_t i = 0; i < 3; ++i) peer.Send(RawPeer::WriteImm(peer.arena, 0, 0, i));
  Completion arrivals[8];
  size_t count = 0;
  for (const Deadline deadline = Patience(); count < 3 && !deadline.expired();) {
    count += peer.side.transport->PollReceive(Span<Completion>(arrivals).subspan(count));
  }
  const uint64_t calls = peer.side.counters->values().send_calls;
  ASSERT_EQ(peer.side.endpoint->Post(Chain({peer.side.WriteImm(0, 0, 0, 9)})), 1u);
  EXPECT_EQ(peer.side.counters->values().send_calls, calls + 1);
  uint32_t acknowledged = 0;
  Frame frame = FrameOf(peer.Receive(sizeof(Frame)));
  for (; frame.type == FrameType::kAck; frame = FrameOf(peer.Receive(sizeof(Frame)))) {
    acknowledged += frame.immediate;
  }
  EXPECT_EQ(acknowledged, 3u);
  EXPECT_EQ(frame.immediate, 9u);
}

TEST(TcpStream, WhatIsQueuedMakesNoSystemCallUntilItIsSent) {
  RawPeer peer;
  const uint64_t calls = peer.side.counters->values().send_calls;
  ASSERT_EQ(peer.side.endpoint->Queue(Chain({peer.side.WriteImm(0, 0, 0, 9)})), 1u);
  EXPECT_EQ(peer.side.counters->values().send_calls, calls);
  peer.side.endpoint->SendQueued();
  EXPECT_EQ(peer.side.counters->values().send_calls, calls + 1);
  EXPECT_EQ(FrameOf(peer.Receive(sizeof(Frame))).immediate, 9u);
}

TEST(TcpStream, RepliesComeInOrderAndMayComeInParts) {
  RawPeer peer;
  testing::Side& side = peer.side;
  WorkRequest first = side.Read(0, 0, 1000, 1);
  WorkRequest second = side.Read(2000, 0, 8, 2);
  ASSERT_EQ(side.endpoint->Post(Chain({first, second})), 2u);
  EXPECT_EQ(FrameOf(peer.Receive(sizeof(Frame))).length, 1000u);
  EXPECT_EQ(FrameOf(peer.Receive(sizeof(Frame))).length, 8u);
  const std::string whole = Pattern(1000, 4);
  Frame reply;
  reply.type = FrameType::kReply;
  for (size_t at = 0; at < 1000; at += 250) {
    reply.length = 250;
    peer.Send(reply, whole.substr(at, 250));
  }
  for (int i = 0; i < 100; ++i) side.Poll();
  Completion done[4];
  EXPECT_EQ(side.endpoint->PollSend(done), 0u);
  reply.length = 8;
  peer.Send(reply, "abcdefgh");
  const auto sends = side.TakeSends(1, Patience());
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_EQ(sends[0].id, 2u);
  const auto* memory = reinterpret_cast<const char*>(side.staging.local.address);
  EXPECT_EQ(std::string(memory, 1000), whole);
  EXPECT_EQ(std::string(memory + 2000, 8), "abcdefgh");
}

}  // namespace
}  // namespace rdmabatch::tcp
