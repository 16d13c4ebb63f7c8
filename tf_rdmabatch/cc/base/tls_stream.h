// TlsStream: encryption of one connected stream socket, between two that share a key: TLS 1.3 with
// that key (PSK) and fresh ones of each connection (ECDHE). There are no certificates.
#ifndef TF_RDMABATCH_CC_BASE_TLS_STREAM_H_
#define TF_RDMABATCH_CC_BASE_TLS_STREAM_H_

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/openssl.h"
#include "tf_rdmabatch/cc/base/status.h"

namespace rdmabatch {

// One thread may send while another receives.
class TlsStream {
 public:
  using Key = std::array<uint8_t, 32>;
  enum class Role : uint8_t { kConnects, kListens };
  // AES-GCM is good for 2^24.5 records of a key (RFC 8446, 5.5); then a side takes the next one.
  static constexpr uint64_t kRecordsPerKey = uint64_t{1} << 23;

  // Whether it can be used here, or what to install.
  static Status Probe();

  // Takes a non-blocking socket, which is not owned and outlives the stream, and blocks until both
  // sides have shown that they have `key`. kPermissionDenied: the other side has not.
  // kDeadlineExceeded, kUnavailable: it said nothing, or went.
  static Result<std::unique_ptr<TlsStream>> Start(int socket, Role role, const Key& key,
                                                  Deadline deadline,
                                                  uint64_t records_per_key = kRecordsPerKey);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // As sendmsg, on a non-blocking socket. After EAGAIN the next call begins with the same bytes,
  // of which some may be on their way.
  ssize_t Send(const iovec* parts, size_t count);

  // As recvmsg, at most `most` bytes. Fewer than there is room for: nothing more waits. Else
  // pending() bytes may, of which the socket does not tell. EBADMSG: what came was not sent by the
  // peer, or not in this order.
  ssize_t Receive(const iovec* parts, size_t count, size_t most = SIZE_MAX);
  // Whoever receives.
  size_t pending() const { return pending_; }

 private:
  TlsStream(int socket, const Key& key, uint64_t records_per_key)
      : socket_(socket), key_(key), records_per_key_(records_per_key) {}

  Status Open(Role role);
  Status Handshake(Deadline deadline);
  Status Failed() const;
  SSL_SESSION* NewSession(SSL* ssl) const;
  // Encrypts what follows the first `skip` bytes, up to a bound, into out_.
  bool Encrypt(const iovec* parts, size_t count, size_t skip);
  bool EncryptRecord(const uint8_t* bytes, size_t size);
  // Sends out_. False, with errno: not all of it.
  bool Flush();

  // Callbacks of OpenSSL.
  static BIO_METHOD* Method();
  static int WriteOut(BIO* bio, const char* bytes, int size);
  static int ReadSocket(BIO* bio, char* bytes, int size);
  static int UseSession(SSL* ssl, const EVP_MD* digest, const unsigned char** identity,
                        size_t* identity_bytes, SSL_SESSION** session);
  static int FindSession(SSL* ssl, const unsigned char* identity, size_t identity_bytes,
                         SSL_SESSION** session);

  const int socket_;
  const Key key_;
  const uint64_t records_per_key_;

  std::mutex mutex_;  // of ssl_, and of all below
  SSL* ssl_ = nullptr;
  int ended_ = -1;  // why nothing comes any more: 0 at the end of the stream, or an errno

  std::vector<uint8_t> record_;  // gathered to be encrypted
  std::vector<uint8_t> out_;     // encrypted
  size_t out_sent_ = 0;
  size_t batch_ = 0;  // bytes of the caller that out_ holds
  uint64_t records_ = 0;

  size_t pending_ = 0;  // the receiver's
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_BASE_TLS_STREAM_H_
