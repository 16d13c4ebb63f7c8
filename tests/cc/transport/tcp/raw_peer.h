// A peer of the tcp transport that speaks its protocol by hand, so that it can break it.
#ifndef TF_RDMABATCH_TESTS_CC_TRANSPORT_TCP_RAW_PEER_H_
#define TF_RDMABATCH_TESTS_CC_TRANSPORT_TCP_RAW_PEER_H_

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cc/transport/harness.h"
#include "tf_rdmabatch/cc/transport/tcp/socket.h"
#include "tf_rdmabatch/cc/transport/tcp/wire.h"

namespace rdmabatch::tcp {

inline Offer OfferOf(const std::string& bytes) {
  Offer offer;
  EXPECT_TRUE(Unpack(bytes, &offer));
  return offer;
}

inline UniqueFd ConnectRaw(const Offer& offer) {
  auto socket = ConnectTo(offer, Deadline::After(testing::kPatience));
  EXPECT_TRUE(socket.ok()) << socket.status().message();
  return socket.ok() ? std::move(*socket) : UniqueFd();
}

// Our side, accepted by a real acceptor, and the raw socket that is its peer.
class RawPeer {
 public:
  explicit RawPeer(EndpointOptions options = {}) {
    side.transport = testing::NewTransport({"tcp", ""});
    side.Register(testing::kArenaBytes);
    options.context = 7;
    options.counters = side.counters.get();
    auto acceptor = side.transport->Listen("127.0.0.1");
    EXPECT_TRUE(acceptor.ok()) << acceptor.status().message();
    const Offer offer = OfferOf((*acceptor)->offer());
    Result<std::unique_ptr<Endpoint>> accepted = Status(StatusCode::kInternal, "not accepted");
    std::thread accepting([&] { accepted = (*acceptor)->Accept(options, testing::Patience()); });
    socket = ConnectRaw(offer);
    Greeting greeting;
    greeting.secret = offer.connect_secret;
    greeting.queue_depth = kReads;
    Send(Pack(greeting));
    accepting.join();
    EXPECT_TRUE(accepted.ok()) << accepted.status().message();
    side.endpoint = std::move(*accepted);
    EXPECT_TRUE(Unpack(Receive(sizeof(greeting)), &greeting));
    EXPECT_EQ(greeting.secret, offer.accept_secret);
    arena = RegionOf(side.arena);
    published = RegionOf(side.published);
  }

  void Send(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t n = send(socket.get(), &bytes[at], bytes.size() - at, MSG_NOSIGNAL);
      if (n > 0) at += static_cast<size_t>(n);
      if (n < 0 && errno != EAGAIN) break;
      if (n < 0) side.Poll();
    }
  }
  void Send(const Frame& frame, const std::string& payload = "") {
    Send(std::string(reinterpret_cast<const char*>(&frame), sizeof(frame)) + payload);
  }

  // Exactly so many bytes, while our side polls.
  std::string Receive(size_t bytes) {
    std::string got(bytes, 0);
    size_t have = 0;
    for (const Deadline deadline = testing::Patience(); !deadline.expired();) {
      auto whole = ReceiveSome(socket.get(), got.data(), bytes, &have);
      if (!whole.ok() || *whole) break;
      if (side.endpoint != nullptr) side.Poll();
    }
    EXPECT_EQ(have, bytes);
    return got;
  }

  // The one failure that our side reports; empty when none comes.
  std::string Failure() {
    const auto arrivals = side.TakeArrivals(1, testing::Patience());
    if (arrivals.size() != 1 || arrivals[0].ok) return "";
    EXPECT_EQ(arrivals[0].id, 7u);
    return arrivals[0].error;
  }

  static Frame Write(const Region& region, uint64_t offset, uint32_t length) {
    Frame frame;
    frame.type = FrameType::kWrite;
    frame.length = length;
    frame.region = region.id;
    frame.offset = offset;
    return frame;
  }
  static Frame WriteImm(const Region& region, uint64_t offset, uint32_t length,
                        uint32_t immediate) {
    Frame frame = Write(region, offset, length);
    frame.type = FrameType::kWriteImm;
    frame.immediate = immediate;
    return frame;
  }
  static Frame Read(const Region& region, uint64_t offset, uint32_t length) {
    Frame frame = Write(region, offset, length);
    frame.type = FrameType::kRead;
    return frame;
  }

  static constexpr uint32_t kReads = 4;  // that this peer says it may have outstanding
  testing::Side side;
  UniqueFd socket;
  Region arena;      // writable
  Region published;  // readable

 private:
  Region RegionOf(const testing::Memory& memory) {
    Region region;
    auto descriptor = side.endpoint->Export(memory.local);
    EXPECT_TRUE(descriptor.ok() && Unpack(*descriptor, &region));
    return region;
  }
};

}  // namespace rdmabatch::tcp

#endif  // TF_RDMABATCH_TESTS_CC_TRANSPORT_TCP_RAW_PEER_H_
