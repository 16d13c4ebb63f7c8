// A peer that speaks the shared-memory protocol just well enough to break it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "tests/cc/transport/harness.h"
#include "tf_rdmabatch/cc/transport/shm/layout.h"
#include "tf_rdmabatch/cc/transport/shm/unix_socket.h"

namespace rdmabatch::shm {
namespace {

using testing::Chain;
using testing::Patience;
using testing::Side;

constexpr uint32_t kReceives = 8;

ControlPage* PageOf(const Segment& segment) {
  return reinterpret_cast<ControlPage*>(segment.data());
}

// The connecting side, as it pleases.
struct Hostile {
  UniqueFd socket;
  UniqueFd event_fd{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  Segment own;
  Segment victims;  // the victim's control page

  ControlPage* own_page() const { return PageOf(own); }
  ControlPage* victims_page() const { return PageOf(victims); }

  bool Greet(const Offer& offer) {
    auto connected = ConnectTo(offer.name);
    if (!connected.ok()) return false;
    socket = std::move(*connected);
    Greeting greeting;
    greeting.connect_secret = offer.connect_secret;
    return Send(socket.get(), Pack(greeting), {}).ok();
  }

  bool TakeHello() {
    auto message = ReceiveBefore(socket.get(), Patience());
    Hello hello;
    if (!message.ok() || !Unpack(message->bytes, &hello) || message->fd_count != 2) return false;
    auto mapped = Segment::Map(message->fds[0].release(), ControlBytes(hello.max_receives), true);
    if (!mapped.ok()) return false;
    victims = std::move(*mapped);
    return true;
  }

  bool SendHello() {
    auto segment = Segment::Create(ControlBytes(kReceives));
    if (!segment.ok()) return false;
    own = std::move(*segment);
    new (own.data()) ControlPage;
    Hello hello;
    hello.max_receives = kReceives;
    const int fds[] = {own.fd(), event_fd.get()};
    return Send(socket.get(), Pack(hello), fds).ok();
  }
};

class ShmHostileTest : public testing::TransportTest {
 protected:
  void SetUp() override {
    TransportTest::SetUp();
    victim_.transport = NewTransport();
    ASSERT_NE(victim_.transport, nullptr);
    auto acceptor = victim_.transport->Listen("127.0.0.1");
    ASSERT_TRUE(acceptor.ok());
    acceptor_ = std::move(*acceptor);
    ASSERT_TRUE(Unpack(acceptor_->offer(), &offer_));
    options_ = Options(3);
    options_.counters = victim_.counters.get();
    options_.max_receives = kReceives;
  }

  // Runs Accept while the hostile side acts.
  Status AcceptWhile(const std::function<void()>& act, double seconds = testing::kPatience) {
    Result<std::unique_ptr<Endpoint>> accepted = Status(StatusCode::kInternal, "not accepted");
    std::thread accepting(
        [&] { accepted = acceptor_->Accept(options_, Deadline::After(seconds)); });
    act();
    accepting.join();
    if (accepted.ok()) victim_.endpoint = std::move(*accepted);
    return accepted.status();
  }

  void Join() {
    const Status status = AcceptWhile([&] {
      ASSERT_TRUE(hostile_.Greet(offer_));
      ASSERT_TRUE(hostile_.TakeHello());
      ASSERT_TRUE(hostile_.SendHello());
    });
    ASSERT_TRUE(status.ok()) << status.message();
    victim_.Register(4096);
  }

  // Shares a region with the victim, so that it can post.
  void ShareRegion() {
    auto segment = Segment::Create(4096);
    ASSERT_TRUE(segment.ok());
    shared_ = std::move(*segment);
    Region region;
    region.id = 1;
    region.bytes = 4096;
    region.writable = 1;
    const int fds[] = {shared_.fd()};
    ASSERT_TRUE(Send(hostile_.socket.get(), Pack(region), fds).ok());
    auto imported = victim_.endpoint->Import(Pack(region));
    ASSERT_TRUE(imported.ok()) << imported.status().message();
    victim_.arena.peers = *imported;
  }

  void ExpectBroken(StatusCode code) {
    EXPECT_EQ(victim_.endpoint->CheckControl().code(), code);
    EXPECT_EQ(victim_.endpoint->Post(Chain({victim_.WriteImm(0, 0, 0, 1)})), 0u);
    Completion sends[2];
    ASSERT_EQ(victim_.endpoint->PollSend(sends), 1u);
    EXPECT_FALSE(sends[0].ok);
    EXPECT_EQ(victim_.endpoint->PollSend(sends), 0u);
    auto message = ReceiveBefore(hostile_.socket.get(), Patience());
    EXPECT_FALSE(message.ok()) << "it loses its connection";
  }

  Hostile hostile_;
  Segment shared_;
  Offer offer_;
  std::unique_ptr<Acceptor> acceptor_;
  EndpointOptions options_;
  Side victim_;
};
INSTANTIATE_TEST_SUITE_P(Shm, ShmHostileTest, ::testing::Values(testing::Subject{"shm", ""}),
                         testing::SubjectName);

TEST_P(ShmHostileTest, ItWorksWhenItBehaves) {
  ASSERT_NO_FATAL_FAILURE(Join());
  ASSERT_NO_FATAL_FAILURE(ShareRegion());
  Ring(hostile_.victims_page())[0].store(55);
  hostile_.victims_page()->head.store(1);
  const auto arrivals = victim_.TakeArrivals(1, Patience());
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_TRUE(arrivals[0].ok);
  EXPECT_EQ(arrivals[0].immediate, 55u);
  ASSERT_EQ(victim_.endpoint->Post(Chain({victim_.WriteImm(0, 0, 8, 66)})), 1u);
  EXPECT_EQ(hostile_.own_page()->head.load(), 1u);
  EXPECT_EQ(Ring(hostile_.own_page())[0].load(), 66u);
  hostile_.own_page()->tail.store(1);
  EXPECT_EQ(victim_.TakeSends(1, Patience()).size(), 1u);
}

TEST_P(ShmHostileTest, AHeadThatRanAwayBreaksTheEndpoint) {
  ASSERT_NO_FATAL_FAILURE(Join());
  hostile_.victims_page()->head.store(kReceives + 1);
  const auto arrivals = victim_.TakeArrivals(2, Deadline::After(0.1));
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_FALSE(arrivals[0].ok);
  EXPECT_EQ(arrivals[0].id, 3u);
  EXPECT_STREQ(arrivals[0].error, "the peer corrupted the ring of immediates");
  EXPECT_EQ(victim_.counters->values().receive_completions, 0u);
  ExpectBroken(StatusCode::kDataLoss);
}

TEST_P(ShmHostileTest, AHeadThatWentBackBreaksTheEndpoint) {
  ASSERT_NO_FATAL_FAILURE(Join());
  hostile_.victims_page()->head.store(0xffffffff);
  const auto arrivals = victim_.TakeArrivals(1, Deadline::After(0.1));
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_FALSE(arrivals[0].ok);
}

TEST_P(ShmHostileTest, ATailThatRanAwayBreaksTheEndpoint) {
  for (uint32_t tail : {2u, 0x80000000u}) {
    SCOPED_TRACE(tail);
    ASSERT_NO_FATAL_FAILURE(Join());
    ASSERT_NO_FATAL_FAILURE(ShareRegion());
    ASSERT_EQ(victim_.endpoint->Post(Chain({victim_.WriteImm(0, 0, 8, 66)})), 1u);
    hostile_.own_page()->tail.store(tail);
    const auto sends = victim_.TakeSends(1, Deadline::After(0.1));
    ASSERT_EQ(sends.size(), 1u);
    EXPECT_FALSE(sends[0].ok);
    EXPECT_EQ(victim_.endpoint->CheckControl().code(), StatusCode::kDataLoss);
    victim_.endpoint.reset();
    auto acceptor = victim_.transport->Listen("");
    ASSERT_TRUE(acceptor.ok());
    acceptor_ = std::move(*acceptor);
    ASSERT_TRUE(Unpack(acceptor_->offer(), &offer_));
  }
}

TEST_P(ShmHostileTest, ScribblingOnItsOwnersFieldsHarmsNobody) {
  ASSERT_NO_FATAL_FAILURE(Join());
  ASSERT_NO_FATAL_FAILURE(ShareRegion());
  std::mt19937 random(1);
  Completion completions[32];
  for (int i = 0; i < 20000; ++i) {
    hostile_.victims_page()->tail.store(random());
    hostile_.victims_page()->sleeping.store(random());
    hostile_.victims_page()->want_tail.store(random());
    hostile_.own_page()->sleeping.store(random());
    hostile_.own_page()->head.store(random());
    Ring(hostile_.victims_page())[random() % kReceives].store(random());
    const auto more = random() % (kReceives + 1);
    hostile_.victims_page()->head.fetch_add(static_cast<uint32_t>(more));
    size_t taken = 0;
    while (const size_t n = victim_.transport->PollReceive(completions)) taken += n;
    ASSERT_EQ(taken, more);
    ASSERT_EQ(victim_.endpoint->Post(Chain({victim_.WriteImm(0, 0, 8, 1)})), 1u);
    hostile_.own_page()->tail.fetch_add(1);
    ASSERT_EQ(victim_.endpoint->PollSend(completions), 1u);
    ASSERT_TRUE(completions[0].ok);
  }
}

TEST_P(ShmHostileTest, MalformedMessagesBreakTheEndpoint) {
  Region region;
  region.id = 9;
  region.bytes = 4096;
  const auto send = [&](const std::string& bytes, bool with_fd) {
    auto segment = Segment::Create(4096);
    const int fds[] = {segment->fd()};
    return Send(hostile_.socket.get(), bytes, with_fd ? Span<const int>(fds) : Span<const int>())
        .ok();
  };
  const std::function<bool()> attacks[] = {
      [&] { return send("x", false); },
      [&] { return send(Pack(region), false); },
      [&] { return send(Pack(region) + "x", true); },
      [&] { return send(std::string(4000, 'x'), true); },
      [&] { return send(Pack(region), true) && send(Pack(region), true); },
  };
  for (const auto& attack : attacks) {
    ASSERT_NO_FATAL_FAILURE(Join());
    ASSERT_TRUE(attack());
    ExpectBroken(StatusCode::kDataLoss);
    victim_.endpoint.reset();
    auto acceptor = victim_.transport->Listen("");
    ASSERT_TRUE(acceptor.ok());
    acceptor_ = std::move(*acceptor);
    ASSERT_TRUE(Unpack(acceptor_->offer(), &offer_));
  }
}

TEST_P(ShmHostileTest, FloodingWithRegionsBreaksTheEndpoint) {
  ASSERT_NO_FATAL_FAILURE(Join());
  auto segment = Segment::Create(4096);
  ASSERT_TRUE(segment.ok());
  const int fds[] = {segment->fd()};
  Region region;
  region.bytes = 4096;
  Status status;
  for (region.id = 0; region.id <= kMaxRegions && status.ok(); ++region.id) {
    ASSERT_TRUE(Send(hostile_.socket.get(), Pack(region), fds).ok());
    status = victim_.endpoint->CheckControl();
  }
  EXPECT_EQ(region.id, kMaxRegions + 1);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
}

TEST_P(ShmHostileTest, RegionsThatAreNotWhatTheyClaimAreRefused) {
  ASSERT_NO_FATAL_FAILURE(Join());
  auto small = Segment::Create(4096);
  UniqueFd shrinkable(memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(shrinkable.get(), 1 << 20), 0);
  UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  uint64_t id = 0;
  for (int fd : {small->fd(), shrinkable.get(), null.get(), hostile_.event_fd.get()}) {
    Region region;
    region.id = ++id;
    region.bytes = 1 << 20;
    const int fds[] = {fd};
    ASSERT_TRUE(Send(hostile_.socket.get(), Pack(region), fds).ok());
    EXPECT_EQ(victim_.endpoint->Import(Pack(region)).status().code(), StatusCode::kDataLoss);
  }
  EXPECT_TRUE(victim_.endpoint->CheckControl().ok());
}

TEST_P(ShmHostileTest, BadHellosAreRefused) {
  auto good = Segment::Create(ControlBytes(kReceives));
  UniqueFd shrinkable(memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(shrinkable.get(), 1 << 20), 0);
  int pipes[2];
  ASSERT_EQ(pipe2(pipes, O_CLOEXEC), 0);
  UniqueFd reader(pipes[0]);
  UniqueFd writer(pipes[1]);
  Hello hello;
  hello.max_receives = kReceives;
  Hello huge = hello;
  huge.max_receives = kMaxReceives;  // its page has fewer
  Hello wild = hello;
  wild.max_receives = 0xffffffff;
  Hello none = hello;
  none.max_receives = 0;
  Hello newer = hello;
  newer.version = kVersion + 1;
  const int event_fd = hostile_.event_fd.get();
  const struct {
    std::string bytes;
    std::vector<int> fds;
  } hellos[] = {
      {Pack(hello), {}},
      {Pack(hello), {good->fd()}},
      {Pack(hello), {good->fd(), writer.get()}},
      {Pack(hello), {event_fd, event_fd}},
      {Pack(hello), {shrinkable.get(), event_fd}},
      {Pack(huge), {good->fd(), event_fd}},
      {Pack(wild), {good->fd(), event_fd}},
      {Pack(none), {good->fd(), event_fd}},
      {Pack(newer), {good->fd(), event_fd}},
      {"hello", {good->fd(), event_fd}},
  };
  for (const auto& bad : hellos) {
    const Status status = AcceptWhile([&] {
      ASSERT_TRUE(hostile_.Greet(offer_));
      ASSERT_TRUE(hostile_.TakeHello());
      ASSERT_TRUE(Send(hostile_.socket.get(), bad.bytes, {bad.fds.data(), bad.fds.size()}).ok());
    });
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.message();
    auto acceptor = victim_.transport->Listen("");
    ASSERT_TRUE(acceptor.ok());
    acceptor_ = std::move(*acceptor);
    ASSERT_TRUE(Unpack(acceptor_->offer(), &offer_));
  }
}

TEST_P(ShmHostileTest, StrangersDoNotKeepThePeerOut) {
  Hostile wrong_secret;
  Hostile gone;
  Hostile silent;
  const Status status = AcceptWhile([&] {
    Offer guess = offer_;
    guess.connect_secret[0] ^= 1;
    ASSERT_TRUE(wrong_secret.Greet(guess));
    ASSERT_TRUE(gone.Greet(guess));
    gone.socket.reset();
    auto connected = ConnectTo(offer_.name);
    ASSERT_TRUE(connected.ok());
    silent.socket = std::move(*connected);
    ASSERT_TRUE(hostile_.Greet(offer_));
    ASSERT_TRUE(hostile_.TakeHello());
    ASSERT_TRUE(hostile_.SendHello());
  });
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_FALSE(ReceiveBefore(wrong_secret.socket.get(), Patience()).ok())
      << "a stranger is given nothing";
}

TEST_P(ShmHostileTest, APeerThatStopsInTheHandshakeIsGivenUp) {
  EXPECT_EQ(AcceptWhile([&] { ASSERT_TRUE(hostile_.Greet(offer_)); }, 0.2).code(),
            StatusCode::kDeadlineExceeded);
}

TEST_P(ShmHostileTest, ASocketOfTheSameNameIsNotThePeer) {
  acceptor_.reset();
  auto listener = ListenAt(offer_.name);
  ASSERT_TRUE(listener.ok());
  Status status;
  std::thread connecting(
      [&] { status = victim_.transport->Connect(Pack(offer_), options_, Patience()).status(); });
  auto socket = AcceptFrom(listener->get(), Patience());
  ASSERT_TRUE(socket.ok());
  hostile_.socket = std::move(*socket);
  EXPECT_TRUE(hostile_.SendHello());  // without the secret that only the offer's maker knows
  connecting.join();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.message();
  auto greeting = ReceiveBefore(hostile_.socket.get(), Patience());
  ASSERT_TRUE(greeting.ok());
  EXPECT_EQ(greeting->fd_count, 0u);
  EXPECT_FALSE(ReceiveBefore(hostile_.socket.get(), Patience()).ok()) << "it is given no memory";
}

}  // namespace
}  // namespace rdmabatch::shm
