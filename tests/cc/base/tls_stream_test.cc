#include "tf_rdmabatch/cc/base/tls_stream.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <thread>

#include "tf_rdmabatch/cc/base/unique_fd.h"

namespace rdmabatch {
namespace {

using Role = TlsStream::Role;
using Started = Result<std::unique_ptr<TlsStream>>;

Deadline Patience() { return Deadline::After(60); }

TlsStream::Key KeyOf(uint8_t byte) {
  TlsStream::Key key;
  key.fill(byte);
  return key;
}

struct Sockets {
  Sockets() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    one.reset(fds[0]);
    other.reset(fds[1]);
  }
  UniqueFd one;
  UniqueFd other;
};

bool Wait(int socket, int16_t events) {
  pollfd waiting{socket, events, 0};
  return poll(&waiting, 1, 60000) > 0;
}

// Both ends over a relay that keeps what went over the wire, and may change it.
class Relayed {
 public:
  explicit Relayed(uint64_t records_per_key = TlsStream::kRecordsPerKey) {
    relay_ = std::thread([this] { Relay(); });
    Started accepted = Status(StatusCode::kInternal, "not accepted");
    std::thread accepting([&] {
      accepted = TlsStream::Start(server_.one.get(), Role::kListens, KeyOf(1), Patience(),
                                  records_per_key);
    });
    auto connected =
        TlsStream::Start(client_.one.get(), Role::kConnects, KeyOf(1), Patience(), records_per_key);
    accepting.join();
    EXPECT_TRUE(connected.ok()) << connected.status().message();
    EXPECT_TRUE(accepted.ok()) << accepted.status().message();
    if (!connected.ok() || !accepted.ok()) return;
    client = std::move(*connected);
    server = std::move(*accepted);
  }
  ~Relayed() { Finish(); }

  // Sends all of it, in two parts, from the client to the server, and returns what came.
  std::string Carry(const std::string& bytes) {
    std::thread sending([&] {
      for (size_t at = 0; at < bytes.size();) {
        const size_t half = (bytes.size() - at) / 2;
        char* from = const_cast<char*>(bytes.data()) + at;
        const iovec parts[2] = {{from, half}, {from + half, bytes.size() - at - half}};
        const ssize_t n = client->Send(parts, 2);
        if (n > 0) at += static_cast<size_t>(n);
        if (n < 0 && (errno != EAGAIN || !Wait(client_.one.get(), POLLOUT))) return;
      }
    });
    std::string got(bytes.size(), '\0');
    size_t have = 0;
    while (have < got.size()) {
      const iovec parts[2] = {
          {&got[have], (got.size() - have) / 2},
          {&got[have + (got.size() - have) / 2], got.size() - have - (got.size() - have) / 2}};
      const ssize_t n = server->Receive(parts, 2);
      if (n == 0) break;
      if (n > 0) have += static_cast<size_t>(n);
      if (n < 0 && (errno != EAGAIN || !Wait(server_.one.get(), POLLIN))) break;
    }
    sending.join();
    return got.substr(0, have);
  }
  // Ends the wire; what went over it.
  const std::string& Finish() {
    if (relay_.joinable()) {
      shutdown(client_.one.get(), SHUT_RDWR);
      relay_.join();
    }
    return wire_;
  }
  // All that the client says from now on arrives with one bit changed.
  void Tamper() { tamper_.store(true); }
  int server_socket() const { return server_.one.get(); }

  std::unique_ptr<TlsStream> client;
  std::unique_ptr<TlsStream> server;

 private:
  bool Pass(int from, int to, bool tamper) {
    char bytes[4096];
    const ssize_t n = recv(from, bytes, sizeof(bytes), 0);
    if (n <= 0) return n < 0 && errno == EAGAIN;
    wire_.append(bytes, static_cast<size_t>(n));
    if (tamper) bytes[n - 1] ^= 1;
    for (ssize_t sent = 0; sent < n;) {
      const ssize_t m = send(to, bytes + sent, static_cast<size_t>(n - sent), MSG_NOSIGNAL);
      if (m > 0) sent += m;
      if (m < 0 && (errno != EAGAIN || !Wait(to, POLLOUT))) return false;
    }
    return true;
  }
  void Relay() {
    pollfd fds[2] = {{client_.other.get(), POLLIN, 0}, {server_.other.get(), POLLIN, 0}};
    bool open = true;
    while (open && poll(fds, 2, 60000) > 0) {
      if (fds[0].revents != 0) open = Pass(fds[0].fd, fds[1].fd, tamper_.load());
      if (open && fds[1].revents != 0) open = Pass(fds[1].fd, fds[0].fd, false);
    }
    shutdown(fds[0].fd, SHUT_RDWR);
    shutdown(fds[1].fd, SHUT_RDWR);
  }

  Sockets client_;
  Sockets server_;
  std::string wire_;  // the relay's until Finish
  std::atomic<bool> tamper_{false};
  std::thread relay_;
};

std::string Text(size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += "weight " + std::to_string(text.size()) + ", ";
  return text.substr(0, bytes);
}

TEST(TlsStream, CarriesBytesThatTheWireDoesNotShow) {
  Relayed relayed;
  ASSERT_TRUE(relayed.client != nullptr && relayed.server != nullptr);
  size_t all = 0;
  for (const size_t bytes : {1, 100, 16384, 16385, 3000000}) {
    ASSERT_EQ(relayed.Carry(Text(bytes)), Text(bytes)) << bytes;
    all += bytes;
  }
  const std::string& wire = relayed.Finish();
  EXPECT_GT(wire.size(), all);
  EXPECT_EQ(wire.find("weight"), std::string::npos);
}

TEST(TlsStream, TakesFreshKeysAndGoesOn) {
  Relayed relayed(/*records_per_key=*/2);
  ASSERT_TRUE(relayed.client != nullptr && relayed.server != nullptr);
  for (const size_t bytes : {500000, 1, 2, 3}) ASSERT_EQ(relayed.Carry(Text(bytes)), Text(bytes));
}

TEST(TlsStream, WhatWasChangedOnItsWayIsNotDelivered) {
  Relayed relayed;
  ASSERT_TRUE(relayed.client != nullptr && relayed.server != nullptr);
  relayed.Tamper();
  EXPECT_EQ(relayed.Carry("0123456789"), "");
  char byte;
  const iovec part{&byte, 1};
  EXPECT_EQ(relayed.server->Receive(&part, 1), -1);
  EXPECT_EQ(errno, EBADMSG);
}

TEST(TlsStream, TheEndOfTheStreamIsTold) {
  Relayed relayed;
  ASSERT_TRUE(relayed.client != nullptr && relayed.server != nullptr);
  relayed.Finish();
  char byte;
  const iovec part{&byte, 1};
  ASSERT_TRUE(Wait(relayed.server_socket(), POLLIN));
  EXPECT_EQ(relayed.server->Receive(&part, 1), 0);
}

TEST(TlsStream, AnotherKeyIsRefusedOnBothSides) {
  Sockets sockets;
  Started accepted = Status(StatusCode::kInternal, "not accepted");
  std::thread accepting([&] {
    accepted = TlsStream::Start(sockets.other.get(), Role::kListens, KeyOf(2), Patience());
  });
  auto connected = TlsStream::Start(sockets.one.get(), Role::kConnects, KeyOf(1), Patience());
  accepting.join();
  EXPECT_EQ(connected.status().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(accepted.status().code(), StatusCode::kPermissionDenied);
}

// What a side makes of a peer that only says this.
Status Against(Role role, const std::string& bytes, bool closes, double seconds) {
  Sockets sockets;
  (void)send(sockets.other.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (closes) shutdown(sockets.other.get(), SHUT_WR);
  return TlsStream::Start(sockets.one.get(), role, KeyOf(1), Deadline::After(seconds)).status();
}

TEST(TlsStream, GarbageSilenceAndAnEndAreErrorsWithinTheDeadline) {
  for (const Role role : {Role::kConnects, Role::kListens}) {
    EXPECT_EQ(Against(role, Text(1000), false, 60).code(), StatusCode::kPermissionDenied);
    EXPECT_EQ(Against(role, "", false, 0.1).code(), StatusCode::kDeadlineExceeded);
    EXPECT_EQ(Against(role, "\x16\x03\x01", false, 0.1).code(), StatusCode::kDeadlineExceeded);
    EXPECT_EQ(Against(role, "", true, 60).code(), StatusCode::kUnavailable);
  }
}

}  // namespace
}  // namespace rdmabatch
