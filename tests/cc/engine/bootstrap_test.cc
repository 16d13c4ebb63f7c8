#include "tf_rdmabatch/cc/engine/bootstrap.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <string>
#include <thread>
#include <utility>

#include "tf_rdmabatch/cc/engine/address.h"

namespace rdmabatch {
namespace {

constexpr double kLong = 60;
constexpr size_t kMaxFrame = 1 << 20;

Deadline Soon() { return Deadline::After(kLong); }
Deadline Now() { return Deadline::After(0); }

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

int Option(int fd, int level, int option) {
  int value = -1;
  socklen_t size = sizeof(value);
  getsockopt(fd, level, option, &value, &size);
  return value;
}

struct Pair {
  BootstrapSocket client;
  BootstrapSocket server;
};

Pair Connected(const std::string& address = "127.0.0.1:0") {
  Result<UniqueFd> listener = ListenTcp(address);
  EXPECT_TRUE(listener.ok()) << listener.status().message();
  Result<BootstrapSocket> client = ConnectTcp(BoundAddress(listener->get()), Soon());
  EXPECT_TRUE(client.ok()) << client.status().message();
  Result<BootstrapSocket> server = AcceptTcp(listener->get(), Soon());
  EXPECT_TRUE(server.ok()) << server.status().message();
  return {std::move(*client), std::move(*server)};
}

TEST(AddressTest, Parses) {
  const struct {
    const char *text, *host, *port;
  } good[] = {{"127.0.0.1:5000", "127.0.0.1", "5000"},
              {"[::1]:0", "::1", "0"},
              {"[fe80::1%lo]:7", "fe80::1%lo", "7"},
              {"node-3.cluster:65535", "node-3.cluster", "65535"},
              {":80", "", "80"}};
  for (const auto& c : good) {
    Result<HostPort> parts = ParseAddress(c.text);
    ASSERT_TRUE(parts.ok()) << c.text;
    EXPECT_EQ(parts->host, c.host);
    EXPECT_EQ(parts->port, c.port);
  }
  for (const char* bad : {"", "host", "host:", "host:x", "host:65536", "host:-1", "host:123456",
                          "::1:5000", "[::1:5000", "[host]:1", "::1]:3"}) {
    Result<HostPort> parts = ParseAddress(bad);
    ASSERT_FALSE(parts.ok()) << bad;
    EXPECT_EQ(parts.status().code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(Contains(parts.status().message(), bad)) << parts.status().message();
  }
}

TEST(ListenTest, FreePortAndItsName) {
  Result<UniqueFd> listener = ListenTcp("127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  std::string bound = BoundAddress(listener->get());
  EXPECT_EQ(bound.rfind("127.0.0.1:", 0), 0u) << bound;
  EXPECT_FALSE(Contains(bound, ":0"));
}

TEST(ListenTest, PortInUseNamesTheAddress) {
  Result<UniqueFd> first = ListenTcp("127.0.0.1:0");
  ASSERT_TRUE(first.ok());
  std::string bound = BoundAddress(first->get());
  Result<UniqueFd> second = ListenTcp(bound);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(Contains(second.status().message(), bound)) << second.status().message();
}

TEST(ListenTest, RestartsOnAPortWithOldConnections) {
  Result<UniqueFd> listener = ListenTcp("127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  std::string bound = BoundAddress(listener->get());
  Result<BootstrapSocket> client = ConnectTcp(bound, Soon());
  ASSERT_TRUE(client.ok());
  {
    Result<BootstrapSocket> server = AcceptTcp(listener->get(), Soon());
    ASSERT_TRUE(server.ok());
  }
  listener->reset();
  EXPECT_TRUE(ListenTcp(bound).ok());
}

TEST(ListenTest, WrongAddressesAreNamed) {
  for (const char* address : {"no-such-host.invalid:5000", "192.0.2.1:0"}) {
    Result<UniqueFd> listener = ListenTcp(address);
    ASSERT_FALSE(listener.ok());
    EXPECT_EQ(listener.status().code(), StatusCode::kInvalidArgument);
    std::string host(address, std::string(address).find(':'));
    EXPECT_TRUE(Contains(listener.status().message(), host)) << listener.status().message();
  }
}

TEST(ListenTest, AcceptEndsAtItsDeadline) {
  Result<UniqueFd> listener = ListenTcp("127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  EXPECT_EQ(AcceptTcp(listener->get(), Deadline::After(0.02)).status().code(),
            StatusCode::kDeadlineExceeded);
  EXPECT_EQ(AcceptTcp(-1, Soon()).status().code(), StatusCode::kFailedPrecondition);
}

TEST(ConnectTest, WaitsForAPeerThatStartsLater) {
  Result<UniqueFd> probe = ListenTcp("127.0.0.1:0");
  ASSERT_TRUE(probe.ok());
  std::string address = BoundAddress(probe->get());
  probe->reset();
  Result<UniqueFd> listener = Status(StatusCode::kUnavailable, "not yet");
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    listener = ListenTcp(address);
  });
  Result<BootstrapSocket> client = ConnectTcp(address, Soon());
  late.join();
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  EXPECT_TRUE(client.ok()) << client.status().message();
}

TEST(ConnectTest, GivesUpAtItsDeadlineAndSaysWhatItSaw) {
  Result<UniqueFd> probe = ListenTcp("127.0.0.1:0");
  ASSERT_TRUE(probe.ok());
  std::string address = BoundAddress(probe->get());
  probe->reset();
  Result<BootstrapSocket> client = ConnectTcp(address, Deadline::After(0.1));
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Contains(client.status().message(), address));
  EXPECT_TRUE(Contains(client.status().message(), "refused")) << client.status().message();
}

TEST(ConnectTest, ASocketConnectedToItselfHasOneName) {
  // What ConnectTcp looks for, made by force: a socket bound to the port that it connects to.
  UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in self{};
  self.sin_family = AF_INET;
  self.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&self), sizeof(self)), 0);
  socklen_t size = sizeof(self);
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&self), &size);
  ASSERT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&self), size), 0);
  EXPECT_EQ(LocalName(fd.get()).text, PeerName(fd.get()).text);
}

TEST(ConnectTest, CanBeCancelled) {
  std::atomic<bool> cancel{false};
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    cancel = true;
  });
  Result<BootstrapSocket> client = ConnectTcp("127.0.0.1:1", Soon(), &cancel);
  canceller.join();
  EXPECT_EQ(client.status().code(), StatusCode::kCancelled);
}

TEST(ConnectTest, RefusesWhatIsNoAddressAtOnce) {
  for (const char* address : {"127.0.0.1", ":5000", "127.0.0.1:0", "::1:5"}) {
    EXPECT_EQ(ConnectTcp(address, Soon()).status().code(), StatusCode::kInvalidArgument) << address;
  }
  Result<BootstrapSocket> unknown = ConnectTcp("no-such-host.invalid:1", Deadline::After(0.01));
  EXPECT_EQ(unknown.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Contains(unknown.status().message(), "no-such-host.invalid"));
}

TEST(BootstrapSocketTest, OptionsAndNames) {
  Pair pair = Connected();
  for (const BootstrapSocket* socket : {&pair.client, &pair.server}) {
    EXPECT_EQ(socket->local_ip(), "127.0.0.1");
    EXPECT_EQ(socket->peer().rfind("127.0.0.1:", 0), 0u);
    EXPECT_EQ(Option(socket->fd(), IPPROTO_TCP, TCP_NODELAY), 1);
    EXPECT_EQ(Option(socket->fd(), SOL_SOCKET, SO_KEEPALIVE), 0);
    EXPECT_EQ(Option(socket->fd(), IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
    EXPECT_TRUE(fcntl(socket->fd(), F_GETFD) & FD_CLOEXEC);
    EXPECT_TRUE(fcntl(socket->fd(), F_GETFL) & O_NONBLOCK);
  }
  EXPECT_EQ(pair.server.peer(), LocalName(pair.client.fd()).text);
}

// The source address of a connection to 127.0.0.2 is 127.0.0.1: as if it were another host.
TEST(BootstrapSocketTest, AHostThatVanishesIsNoticed) {
  Pair pair = Connected("127.0.0.2:0");
  for (const BootstrapSocket* socket : {&pair.client, &pair.server}) {
    EXPECT_EQ(Option(socket->fd(), SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(Option(socket->fd(), IPPROTO_TCP, TCP_KEEPIDLE), 1);
    EXPECT_EQ(Option(socket->fd(), IPPROTO_TCP, TCP_KEEPINTVL), 1);
    EXPECT_EQ(Option(socket->fd(), IPPROTO_TCP, TCP_KEEPCNT), 2);
    EXPECT_EQ(Option(socket->fd(), IPPROTO_TCP, TCP_USER_TIMEOUT), 1900);
  }
}

TEST(BootstrapSocketTest, NamesOverIpv6) {
  if (!ListenTcp("[::1]:0").ok()) GTEST_SKIP() << "no IPv6 on this host";
  Pair six = Connected("[::1]:0");
  EXPECT_EQ(six.server.local_ip(), "::1");
  EXPECT_EQ(six.server.peer().rfind("[::1]:", 0), 0u);

  // An IPv4 peer of an IPv6 listener has an IPv4 name.
  Result<UniqueFd> listener = ListenTcp("[::]:0");
  ASSERT_TRUE(listener.ok());
  std::string bound = BoundAddress(listener->get());
  Result<BootstrapSocket> client = ConnectTcp("127.0.0.1" + bound.substr(bound.rfind(':')), Soon());
  ASSERT_TRUE(client.ok());
  Result<BootstrapSocket> server = AcceptTcp(listener->get(), Soon());
  ASSERT_TRUE(server.ok());
  EXPECT_EQ(server->local_ip(), "127.0.0.1");
  EXPECT_EQ(server->peer(), LocalName(client->fd()).text);
}

TEST(BootstrapSocketTest, NamesResolve) {
  Pair pair = Connected("localhost:0");
  EXPECT_TRUE(pair.client.SendFrame("x", Soon()).ok());
  EXPECT_EQ(*pair.server.ReceiveFrame(Soon(), 1), "x");
}

TEST(BootstrapSocketTest, FramesOfAllSizesBothWays) {
  Pair pair = Connected();
  for (size_t size : {size_t{0}, size_t{1}, size_t{7}, size_t{4096}, kMaxFrame}) {
    std::string payload(size, static_cast<char>('a' + size % 26));
    std::thread sender([&] { EXPECT_TRUE(pair.client.SendFrame(payload, Soon()).ok()); });
    Result<std::string> received = pair.server.ReceiveFrame(Soon(), kMaxFrame);
    sender.join();
    ASSERT_TRUE(received.ok()) << received.status().message();
    EXPECT_EQ(*received, payload);
    EXPECT_TRUE(pair.server.SendFrame("answer", Soon()).ok());
    EXPECT_EQ(*pair.client.ReceiveFrame(Soon(), 6), "answer");
  }
}

TEST(BootstrapSocketTest, FramesKeepTheirBorders) {
  Pair pair = Connected();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(pair.client.SendFrame(std::to_string(i), Soon()).ok());
  }
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(*pair.server.ReceiveFrame(Soon(), 16), std::to_string(i));
  }
}

TEST(BootstrapSocketTest, AFrameMayArriveByteByByte) {
  Pair recording = Connected();
  ASSERT_TRUE(recording.client.SendFrame("hello", Soon()).ok());
  char wire[13];
  ASSERT_TRUE(recording.server.ReceiveBytes(wire, sizeof(wire), Soon()).ok());

  Pair pair = Connected();
  for (size_t i = 0; i < sizeof(wire); ++i) {
    EXPECT_EQ(pair.server.ReceiveFrame(Now(), 16).status().code(), StatusCode::kDeadlineExceeded);
    ASSERT_TRUE(pair.client.SendBytes({wire + i, 1}, Soon()).ok());
  }
  Result<std::string> frame = pair.server.ReceiveFrame(Soon(), 16);
  ASSERT_TRUE(frame.ok()) << frame.status().message();
  EXPECT_EQ(*frame, "hello");
  EXPECT_EQ(pair.server.ReceiveFrame(Now(), 16).status().code(), StatusCode::kDeadlineExceeded);
}

TEST(BootstrapSocketTest, RefusesWhatIsNoFrameAndWhatIsTooLong) {
  Pair garbage = Connected();
  ASSERT_TRUE(garbage.client.SendBytes("GET / HTTP/1.1\r\n\r\n", Soon()).ok());
  Status status = garbage.server.ReceiveFrame(Soon(), kMaxFrame).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_TRUE(Contains(status.message(), garbage.server.peer())) << status.message();

  Pair large = Connected();
  ASSERT_TRUE(large.client.SendFrame("12345", Soon()).ok());
  status = large.server.ReceiveFrame(Soon(), 4).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_TRUE(Contains(status.message(), "5 bytes")) << status.message();
}

TEST(BootstrapSocketTest, APeerThatClosesIsUnavailable) {
  Pair pair = Connected();
  std::string name = pair.server.peer();
  pair.client = BootstrapSocket(UniqueFd());
  Status status = pair.server.ReceiveFrame(Soon(), 16).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Contains(status.message(), name)) << status.message();
  // Neither a signal nor a wait, however often one sends.
  for (int i = 0; i < 100; ++i) status = pair.server.SendFrame("x", Soon());
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
}

TEST(BootstrapSocketTest, APeerThatClosesInsideAFrameIsUnavailable) {
  Pair pair = Connected();
  ASSERT_TRUE(pair.client.SendBytes("RMBF\x05", Soon()).ok());
  pair.client = BootstrapSocket(UniqueFd());
  EXPECT_EQ(pair.server.ReceiveFrame(Soon(), 16).status().code(), StatusCode::kUnavailable);
}

TEST(BootstrapSocketTest, SendingToAPeerThatDoesNotReadEndsAtTheDeadline) {
  Pair pair = Connected();
  std::string payload(64 << 20, 'x');
  EXPECT_EQ(pair.client.SendFrame(payload, Deadline::After(0.1)).code(),
            StatusCode::kDeadlineExceeded);
  // The frame was cut, so the connection is over on both sides.
  EXPECT_EQ(pair.client.SendFrame("x", Soon()).code(), StatusCode::kUnavailable);
  EXPECT_EQ(pair.server.ReceiveFrame(Soon(), payload.size()).status().code(),
            StatusCode::kUnavailable);
}

TEST(BootstrapSocketTest, ShutdownWakesAWaitingThread) {
  Pair pair = Connected();
  std::thread closer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    pair.server.Shutdown();
  });
  EXPECT_EQ(pair.server.ReceiveFrame(Soon(), 16).status().code(), StatusCode::kUnavailable);
  closer.join();
  EXPECT_EQ(pair.client.ReceiveFrame(Soon(), 16).status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace rdmabatch
