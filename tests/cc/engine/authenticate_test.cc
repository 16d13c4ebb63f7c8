#include "tf_rdmabatch/cc/engine/authenticate.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/socket.h>

#include <functional>
#include <string>
#include <thread>

namespace rdmabatch {
namespace {

constexpr char kToken[] = "a-long-random-token";
constexpr size_t kGreetingBytes = 38;

Deadline Soon() { return Deadline::After(60); }

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Sockets {
  BootstrapSocket client{UniqueFd()};
  BootstrapSocket server{UniqueFd()};
};

Sockets Connected() {
  Result<UniqueFd> listener = ListenTcp("127.0.0.1:0");
  EXPECT_TRUE(listener.ok());
  Result<BootstrapSocket> client = ConnectTcp(BoundAddress(listener->get()), Soon());
  EXPECT_TRUE(client.ok());
  Result<BootstrapSocket> server = AcceptTcp(listener->get(), Soon());
  EXPECT_TRUE(server.ok());
  return {std::move(*client), std::move(*server)};
}

struct Outcome {
  Status client;
  Status server;
};

Outcome Handshake(const std::string& client_token, const std::string& server_token) {
  Sockets sockets = Connected();
  Outcome outcome;
  std::thread server([&] {
    outcome.server = AuthenticateServer(sockets.server, server_token, Soon());
    sockets.server = BootstrapSocket(UniqueFd());
  });
  outcome.client = AuthenticateClient(sockets.client, client_token, Soon());
  sockets.client = BootstrapSocket(UniqueFd());
  server.join();
  return outcome;
}

// What the real server makes of a client of our own.
Status ServerAgainst(const std::function<void(BootstrapSocket&)>& client, double seconds = 60) {
  Sockets sockets = Connected();
  std::thread peer([&] { client(sockets.client); });
  Status status = AuthenticateServer(sockets.server, kToken, Deadline::After(seconds));
  sockets.server = BootstrapSocket(UniqueFd());
  peer.join();
  return status;
}

Status ClientAgainst(const std::function<void(BootstrapSocket&)>& server, double seconds = 60) {
  Sockets sockets = Connected();
  std::thread peer([&] { server(sockets.server); });
  Status status = AuthenticateClient(sockets.client, kToken, Deadline::After(seconds));
  sockets.client = BootstrapSocket(UniqueFd());
  peer.join();
  return status;
}

std::string Receive(BootstrapSocket& socket, size_t size) {
  std::string bytes(size, '\0');
  Status status = socket.ReceiveBytes(bytes.data(), size, Soon());
  EXPECT_TRUE(status.ok()) << status.message();
  return bytes;
}

// True when the peer sent its greeting; a busy machine may let its deadline expire before.
bool IsGreeted(BootstrapSocket& socket) {
  char bytes[kGreetingBytes];
  return socket.ReceiveBytes(bytes, kGreetingBytes, Soon()).ok();
}

// True when the peer closed and sent nothing before that.
bool ReceivesNothing(BootstrapSocket& socket) {
  char byte;
  return socket.ReceiveBytes(&byte, 1, Soon()).code() == StatusCode::kUnavailable;
}

std::string Greeting(char version = 1) {
  return std::string("RDMB") + version + std::string(1, '\0') + std::string(32, 'n');
}

std::string Hmac(const std::string& token, const std::string& message) {
  unsigned char out[32];
  unsigned int size = 0;
  HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()),
       reinterpret_cast<const unsigned char*>(message.data()), message.size(), out, &size);
  return {reinterpret_cast<char*>(out), size};
}

TEST(AuthenticateTest, SameTokenOnBothSides) {
  for (const std::string& token : {std::string(kToken), std::string("x"), std::string(4096, 't'),
                                   std::string("with\0null", 9)}) {
    Outcome outcome = Handshake(token, token);
    EXPECT_TRUE(outcome.client.ok()) << outcome.client.message();
    EXPECT_TRUE(outcome.server.ok()) << outcome.server.message();
  }
}

TEST(AuthenticateTest, FramesFollowTheHandshake) {
  Sockets sockets = Connected();
  std::thread server([&] {
    EXPECT_TRUE(AuthenticateServer(sockets.server, kToken, Soon()).ok());
    EXPECT_TRUE(sockets.server.SendFrame("first", Soon()).ok());
  });
  EXPECT_TRUE(AuthenticateClient(sockets.client, kToken, Soon()).ok());
  EXPECT_EQ(*sockets.client.ReceiveFrame(Soon(), 16), "first");
  server.join();
}

TEST(AuthenticateTest, WrongTokenIsRefusedOnBothSidesAtOnce) {
  for (const char* other : {"b-long-random-token", "a-long-random-toke", "a-long-random-token2"}) {
    Outcome outcome = Handshake(other, kToken);
    for (const Status& status : {outcome.client, outcome.server}) {
      EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
      EXPECT_TRUE(Contains(status.message(),
                           "token refused: set the same token (TF_RDMABATCH_TOKEN) on both sides"))
          << status.message();
      EXPECT_TRUE(Contains(status.message(), "127.0.0.1:"));
      EXPECT_FALSE(Contains(status.message(), kToken));
      EXPECT_FALSE(Contains(status.message(), other));
    }
  }
}

TEST(AuthenticateTest, AMissingTokenIsRefusedBeforeAnythingIsSent) {
  for (const std::string& token : {std::string(), std::string(4097, 'x')}) {
    Sockets sockets = Connected();
    EXPECT_EQ(AuthenticateClient(sockets.client, token, Soon()).code(),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(AuthenticateServer(sockets.server, token, Soon()).code(),
              StatusCode::kInvalidArgument);
    sockets.client.Shutdown();
    EXPECT_TRUE(ReceivesNothing(sockets.server));
  }
}

TEST(AuthenticateTest, OtherVersionsAreNamedOnBothSides) {
  Status server = ServerAgainst([](BootstrapSocket& client) {
    EXPECT_TRUE(client.SendBytes(Greeting(7), Soon()).ok());
    EXPECT_EQ(Receive(client, 6), std::string("RDMB\1\0", 6));
    EXPECT_TRUE(ReceivesNothing(client));
  });
  Status client = ClientAgainst([](BootstrapSocket& server) {
    Receive(server, kGreetingBytes);
    EXPECT_TRUE(server.SendBytes(Greeting(7).substr(0, 6), Soon()).ok());
  });
  for (const Status& status : {server, client}) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_TRUE(Contains(status.message(), "version 7")) << status.message();
    EXPECT_TRUE(Contains(status.message(), "version 1")) << status.message();
  }
}

TEST(AuthenticateTest, WhatIsNotThisProgramLearnsNothing) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        std::string("\x16\x03\x01\x02\x00\x01", 6), std::string("SSH-2.0-OpenSSH_9.2\r\n"),
        std::string(1000, '\0'), std::string("RDMC\1\0", 6)}) {
    Status status = ServerAgainst([&](BootstrapSocket& client) {
      (void)client.SendBytes(bytes, Soon());
      EXPECT_TRUE(ReceivesNothing(client));
    });
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.message();
    EXPECT_TRUE(Contains(status.message(), "127.0.0.1:")) << status.message();
    Status client =
        ClientAgainst([&](BootstrapSocket& server) { (void)server.SendBytes(bytes, Soon()); });
    EXPECT_EQ(client.code(), StatusCode::kDataLoss) << client.message();
  }
}

TEST(AuthenticateTest, SilenceEndsAtTheDeadline) {
  // Silent from the start, and after each part of what a client says.
  for (size_t said :
       {size_t{0}, size_t{3}, size_t{6}, size_t{20}, kGreetingBytes, kGreetingBytes + 31}) {
    std::string bytes = (Greeting() + std::string(64, 'p')).substr(0, said);
    Status status = ServerAgainst(
        [&](BootstrapSocket& client) {
          EXPECT_TRUE(client.SendBytes(bytes, Soon()).ok());
          if (said >= kGreetingBytes && !IsGreeted(client)) return;
          EXPECT_TRUE(ReceivesNothing(client)) << said;
        },
        0.05);
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << said << status.message();
  }
  Status client = ClientAgainst(
      [](BootstrapSocket& server) {
        if (IsGreeted(server)) {
          EXPECT_TRUE(ReceivesNothing(server));
        }
      },
      0.05);
  EXPECT_EQ(client.code(), StatusCode::kDeadlineExceeded);
}

TEST(AuthenticateTest, APeerThatLeavesIsUnavailable) {
  EXPECT_EQ(ServerAgainst([](BootstrapSocket& client) { client.Shutdown(); }).code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(ClientAgainst([](BootstrapSocket& server) {
              Receive(server, kGreetingBytes);
              server.Shutdown();
            }).code(),
            StatusCode::kUnavailable);
}

TEST(AuthenticateTest, AReflectedProofIsRefused) {
  // A server without the token sends the client's own nonce and proof back to it.
  Status client = ClientAgainst([](BootstrapSocket& server) {
    std::string greeting = Receive(server, kGreetingBytes);
    ASSERT_TRUE(server.SendBytes(greeting, Soon()).ok());
    ASSERT_TRUE(server.SendBytes("\1" + Receive(server, 32), Soon()).ok());
  });
  EXPECT_EQ(client.code(), StatusCode::kPermissionDenied);

  // A client without the token relays what a second connection to the same server proves: it proves
  // nothing.
  Status server = ServerAgainst([](BootstrapSocket& client) {
    ASSERT_TRUE(client.SendBytes(Greeting(), Soon()).ok());
    std::string answer = Receive(client, kGreetingBytes);
    ASSERT_TRUE(client.SendBytes(answer.substr(6), Soon()).ok());
    EXPECT_EQ(Receive(client, 1), "\2");
    EXPECT_TRUE(ReceivesNothing(client));
  });
  EXPECT_EQ(server.code(), StatusCode::kPermissionDenied);
}

TEST(AuthenticateTest, AReplayedProofIsRefused) {
  std::string greeting, proof;
  Status first = ServerAgainst([&](BootstrapSocket& client) {
    // A good client, recorded: the protocol of the header, written independently.
    greeting = Greeting();
    ASSERT_TRUE(client.SendBytes(greeting, Soon()).ok());
    std::string answer = Receive(client, kGreetingBytes);
    std::string common = std::string("\1\0", 2) + greeting.substr(6) + answer.substr(6);
    proof = Hmac(kToken, "rdmabatch client proof" + common);
    ASSERT_TRUE(client.SendBytes(proof, Soon()).ok());
    EXPECT_EQ(Receive(client, 33), "\1" + Hmac(kToken, "rdmabatch server proof" + common));
  });
  EXPECT_TRUE(first.ok()) << first.message();
  Status second = ServerAgainst([&](BootstrapSocket& client) {
    ASSERT_TRUE(client.SendBytes(greeting + proof, Soon()).ok());
    Receive(client, kGreetingBytes);
    EXPECT_EQ(Receive(client, 1), "\2");
    EXPECT_TRUE(ReceivesNothing(client));
  });
  EXPECT_EQ(second.code(), StatusCode::kPermissionDenied);
}

TEST(AuthenticateTest, AnUnknownVerdictIsNotAccepted) {
  for (char verdict : {'\0', '\3', '\xff'}) {
    Status client = ClientAgainst([&](BootstrapSocket& server) {
      Receive(server, kGreetingBytes);
      ASSERT_TRUE(server.SendBytes(Greeting(), Soon()).ok());
      Receive(server, 32);
      ASSERT_TRUE(server.SendBytes(std::string(1, verdict) + std::string(32, 'x'), Soon()).ok());
    });
    EXPECT_EQ(client.code(), StatusCode::kDataLoss);
  }
}

// Copies one direction until it ends, and keeps what it saw.
void Relay(BootstrapSocket& from, BootstrapSocket& to, std::string* seen) {
  char byte;
  while (from.ReceiveBytes(&byte, 1, Soon()).ok()) {
    seen->push_back(byte);
    if (!to.SendBytes({&byte, 1}, Soon()).ok()) break;
  }
  to.Shutdown();
}

TEST(AuthenticateTest, TheTokenIsNeverOnTheWireAndNoTwoHandshakesAreAlike) {
  std::string conversations[2][2];
  for (auto& seen : conversations) {
    Sockets near = Connected();
    Sockets far = Connected();
    std::thread server([&] { EXPECT_TRUE(AuthenticateServer(far.server, kToken, Soon()).ok()); });
    std::thread there([&] { Relay(near.server, far.client, &seen[0]); });
    std::thread back([&] { Relay(far.client, near.server, &seen[1]); });
    EXPECT_TRUE(AuthenticateClient(near.client, kToken, Soon()).ok());
    server.join();
    near.client.Shutdown();
    far.server.Shutdown();
    there.join();
    back.join();
    EXPECT_EQ(seen[0].size(), kGreetingBytes + 32);
    EXPECT_EQ(seen[1].size(), kGreetingBytes + 33);
    for (const std::string& bytes : seen) EXPECT_FALSE(Contains(bytes, kToken));
  }
  EXPECT_NE(conversations[0][0], conversations[1][0]);
  EXPECT_NE(conversations[0][1], conversations[1][1]);
}

}  // namespace
}  // namespace rdmabatch
