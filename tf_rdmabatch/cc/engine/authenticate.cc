#include "tf_rdmabatch/cc/engine/authenticate.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cstring>
#include <string_view>

#include "tf_rdmabatch/cc/engine/bytes.h"

namespace rdmabatch {
namespace {

constexpr std::string_view kMagic = "RDMB";
constexpr size_t kPrefixBytes = 6;
constexpr size_t kNonceBytes = 32;
constexpr size_t kProofBytes = 32;
constexpr size_t kMaxTokenBytes = 4096;
constexpr std::string_view kClientLabel = "rdmabatch client proof";
constexpr std::string_view kServerLabel = "rdmabatch server proof";
constexpr std::string_view kTlsLabel = "rdmabatch tls key";

enum Verdict : uint8_t { kAccepted = 1, kRefused = 2 };

struct Nonce {
  char bytes[kNonceBytes];
  std::string_view view() const { return {bytes, kNonceBytes}; }
};

struct Proof {
  unsigned char bytes[kProofBytes];
  std::string_view view() const { return {reinterpret_cast<const char*>(bytes), kProofBytes}; }
};

Status CheckToken(const std::string& token) {
  if (token.empty()) {
    return {StatusCode::kInvalidArgument,
            "no token: set the job's token (TF_RDMABATCH_TOKEN) on both sides"};
  }
  if (token.size() > kMaxTokenBytes) {
    return {StatusCode::kInvalidArgument, "the token is longer than 4096 bytes"};
  }
  return Status::Ok();
}

Status TokenRefused(const BootstrapSocket& socket) {
  return {StatusCode::kPermissionDenied,
          "token refused: set the same token (TF_RDMABATCH_TOKEN) on both sides (peer " +
              socket.peer() + ")"};
}

Result<Nonce> NewNonce() {
  Nonce nonce;
  // Up to 256 bytes come whole once the system's generator has been seeded.
  while (getrandom(nonce.bytes, kNonceBytes, 0) != static_cast<ssize_t>(kNonceBytes)) {
    if (errno != EINTR) return Status(StatusCode::kInternal, "no random numbers: getrandom failed");
  }
  return nonce;
}

// What this side says first: its version, and whether TLS follows.
uint16_t OwnVersion(bool tls) {
  return static_cast<uint16_t>(kProtocolVersion | (tls ? kTlsFollows : 0));
}

Result<Proof> Prove(const std::string& token, std::string_view label, uint16_t version,
                    const Nonce& client, const Nonce& server) {
  ByteWriter message;
  message.Raw(label);
  message.U16(version);
  message.Raw(client.view());
  message.Raw(server.view());
  Proof proof;
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()),
           reinterpret_cast<const unsigned char*>(message.bytes().data()), message.bytes().size(),
           proof.bytes, &size) == nullptr ||
      size != kProofBytes) {
    return Status(StatusCode::kInternal, "libcrypto cannot compute HMAC-SHA256");
  }
  return proof;
}

std::string Prefix(uint16_t version) {
  ByteWriter prefix;
  prefix.Raw(kMagic);
  prefix.U16(version);
  return prefix.Take();
}

Status SendGreeting(BootstrapSocket& socket, uint16_t version, const Nonce& nonce,
                    Deadline deadline) {
  return socket.SendBytes(Prefix(version) + std::string(nonce.view()), deadline);
}

// The peer's prefix: this program, and which version of it.
Result<uint16_t> ReceiveVersion(BootstrapSocket& socket, Deadline deadline) {
  char prefix[kPrefixBytes];
  RDMABATCH_RETURN_IF_ERROR(socket.ReceiveBytes(prefix, kPrefixBytes, deadline));
  ByteReader reader({prefix, kPrefixBytes});
  if (reader.Raw(kMagic.size()) != kMagic) {
    return Status(StatusCode::kDataLoss,
                  "peer " + socket.peer() + " is not this program: it does not speak its protocol");
  }
  return reader.U16();
}

Status CheckVersion(const BootstrapSocket& socket, uint16_t own, uint16_t version) {
  if (version == own) return Status::Ok();
  if ((version ^ own) == kTlsFollows) {
    const std::string here = "this side, " + socket.local_ip() + ",";
    const std::string there = "peer " + socket.peer();
    const bool mine = (own & kTlsFollows) != 0;
    return {StatusCode::kFailedPrecondition,
            (mine ? here : there) + " uses TLS and " + (mine ? there : here) +
                " does not: set TF_RDMABATCH_TLS=1 (tls=True) for all tasks of the job, or for "
                "none"};
  }
  return {StatusCode::kFailedPrecondition,
          "peer " + socket.peer() + " speaks protocol version " +
              std::to_string(version & ~kTlsFollows) + ", this side version " +
              std::to_string(kProtocolVersion) +
              ": install the same release of tf_rdmabatch on both"};
}

Status CheckProof(BootstrapSocket& socket, const Proof& expected, Deadline deadline) {
  Proof received;
  RDMABATCH_RETURN_IF_ERROR(
      socket.ReceiveBytes(reinterpret_cast<char*>(received.bytes), kProofBytes, deadline));
  if (CRYPTO_memcmp(received.bytes, expected.bytes, kProofBytes) != 0) return TokenRefused(socket);
  return Status::Ok();
}

// What one handshake computes once both nonces are known.
struct Proofs {
  Proof client;
  Proof server;
  Proof tls;  // which is sent by neither
};

Result<Proofs> ProveAll(const std::string& token, uint16_t version, const Nonce& client,
                        const Nonce& server) {
  Result<Proof> from_client = Prove(token, kClientLabel, version, client, server);
  if (!from_client.ok()) return from_client.status();
  Result<Proof> from_server = Prove(token, kServerLabel, version, client, server);
  if (!from_server.ok()) return from_server.status();
  Result<Proof> tls = Prove(token, kTlsLabel, version, client, server);
  if (!tls.ok()) return tls.status();
  return Proofs{*from_client, *from_server, *tls};
}

Status StartTls(BootstrapSocket& socket, TlsStream::Role role, const Proofs& proofs,
                Deadline deadline) {
  TlsStream::Key key;
  static_assert(sizeof(key) == kProofBytes);
  std::memcpy(key.data(), proofs.tls.bytes, key.size());
  return socket.StartTls(role, key, deadline);
}

}  // namespace

Status AuthenticateServer(BootstrapSocket& socket, const std::string& token, Deadline deadline,
                          bool tls) {
  const uint16_t own = OwnVersion(tls);
  RDMABATCH_RETURN_IF_ERROR(CheckToken(token));
  Result<uint16_t> version = ReceiveVersion(socket, deadline);
  if (!version.ok()) return version.status();
  if (Status same = CheckVersion(socket, own, *version); !same.ok()) {
    (void)socket.SendBytes(Prefix(own), deadline);
    socket.DiscardReceived();
    return same;
  }
  Nonce client;
  RDMABATCH_RETURN_IF_ERROR(socket.ReceiveBytes(client.bytes, kNonceBytes, deadline));
  Result<Nonce> server = NewNonce();
  if (!server.ok()) return server.status();
  RDMABATCH_RETURN_IF_ERROR(SendGreeting(socket, own, *server, deadline));

  Result<Proofs> proofs = ProveAll(token, own, client, *server);
  if (!proofs.ok()) return proofs.status();
  Status proven = CheckProof(socket, proofs->client, deadline);
  ByteWriter answer;
  if (proven.ok()) {
    answer.U8(kAccepted);
    answer.Raw(proofs->server.view());
    RDMABATCH_RETURN_IF_ERROR(socket.SendBytes(answer.bytes(), deadline));
    return tls ? StartTls(socket, TlsStream::Role::kListens, *proofs, deadline) : Status::Ok();
  }
  if (proven.code() == StatusCode::kPermissionDenied) {
    answer.U8(kRefused);
    (void)socket.SendBytes(answer.bytes(), deadline);
    socket.DiscardReceived();
  }
  return proven;
}

Status AuthenticateClient(BootstrapSocket& socket, const std::string& token, Deadline deadline,
                          bool tls) {
  const uint16_t own = OwnVersion(tls);
  RDMABATCH_RETURN_IF_ERROR(CheckToken(token));
  Result<Nonce> client = NewNonce();
  if (!client.ok()) return client.status();
  RDMABATCH_RETURN_IF_ERROR(SendGreeting(socket, own, *client, deadline));
  Result<uint16_t> version = ReceiveVersion(socket, deadline);
  if (!version.ok()) return version.status();
  RDMABATCH_RETURN_IF_ERROR(CheckVersion(socket, own, *version));
  Nonce server;
  RDMABATCH_RETURN_IF_ERROR(socket.ReceiveBytes(server.bytes, kNonceBytes, deadline));

  Result<Proofs> proofs = ProveAll(token, own, *client, server);
  if (!proofs.ok()) return proofs.status();
  RDMABATCH_RETURN_IF_ERROR(socket.SendBytes(proofs->client.view(), deadline));
  char verdict = 0;
  RDMABATCH_RETURN_IF_ERROR(socket.ReceiveBytes(&verdict, 1, deadline));
  if (verdict == kRefused) return TokenRefused(socket);
  if (verdict != kAccepted) {
    return {StatusCode::kDataLoss, "peer " + socket.peer() + " gave a verdict that does not exist"};
  }
  RDMABATCH_RETURN_IF_ERROR(CheckProof(socket, proofs->server, deadline));
  return tls ? StartTls(socket, TlsStream::Role::kConnects, *proofs, deadline) : Status::Ok();
}

}  // namespace rdmabatch
