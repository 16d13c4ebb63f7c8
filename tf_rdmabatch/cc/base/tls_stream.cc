#include "tf_rdmabatch/cc/base/tls_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>

#include "tf_rdmabatch/cc/base/unchecked_reads.h"
#include "tf_rdmabatch/cc/base/wait_for.h"

namespace rdmabatch {
namespace {

constexpr std::string_view kIdentity = "rdmabatch";
constexpr unsigned char kAes128GcmSha256[] = {0x13, 0x01};
constexpr char kCipherSuite[] = "TLS_AES_128_GCM_SHA256";
constexpr size_t kRecordBytes = 16 << 10;
constexpr size_t kBatchBytes = 8 * kRecordBytes;  // encrypted for one send

// Never freed: streams may live as long as the process.
SSL_CTX* NewContext() {
  SSL_CTX* context = Ssl().SSL_CTX_new(Ssl().TLS_method());
  if (context == nullptr) return nullptr;
  Ssl().SSL_CTX_ctrl(context, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, nullptr);
  Ssl().SSL_CTX_ctrl(context, SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION, nullptr);
  Ssl().SSL_CTX_set_ciphersuites(context, kCipherSuite);
  Ssl().SSL_CTX_set_num_tickets(context, 0);  // nobody resumes
  return context;
}

Status Silent() {
  return {StatusCode::kDeadlineExceeded, "the peer did not answer to TLS before the deadline"};
}

}  // namespace

Status TlsStream::Probe() { return LoadOpenSsl(); }

Result<std::unique_ptr<TlsStream>> TlsStream::Start(int socket, Role role, const Key& key,
                                                    Deadline deadline, uint64_t records_per_key) {
  RDMABATCH_RETURN_IF_ERROR(LoadOpenSsl());
  std::unique_ptr<TlsStream> stream(new TlsStream(socket, key, records_per_key));
  RDMABATCH_RETURN_IF_ERROR(stream->Open(role));
  RDMABATCH_RETURN_IF_ERROR(stream->Handshake(deadline));
  return stream;
}

TlsStream::~TlsStream() {
  if (ssl_ != nullptr) Ssl().SSL_free(ssl_);
}

Status TlsStream::Open(Role role) {
  static SSL_CTX* const context = NewContext();
  ssl_ = context == nullptr ? nullptr : Ssl().SSL_new(context);
  BIO* bio = Method() == nullptr ? nullptr : Ssl().BIO_new(Method());
  if (ssl_ == nullptr || bio == nullptr) {
    return {StatusCode::kInternal, "OpenSSL cannot make a connection of TLS 1.3"};
  }
  Ssl().BIO_set_data(bio, this);
  Ssl().BIO_set_init(bio, 1);
  Ssl().SSL_set_bio(ssl_, bio, bio);
  Ssl().SSL_set_ex_data(ssl_, 0, this);
  if (role == Role::kConnects) {
    // No certificate takes the place of the key.
    Ssl().SSL_set_verify(ssl_, SSL_VERIFY_PEER, nullptr);
    Ssl().SSL_set_psk_use_session_callback(ssl_, UseSession);
    Ssl().SSL_set_connect_state(ssl_);
  } else {
    Ssl().SSL_set_psk_find_session_callback(ssl_, FindSession);
    Ssl().SSL_set_accept_state(ssl_);
  }
  return Status::Ok();
}

Status TlsStream::Handshake(Deadline deadline) {
  while (true) {
    Ssl().ERR_clear_error();
    const int done = Ssl().SSL_do_handshake(ssl_);
    const int error = Ssl().SSL_get_error(ssl_, done);
    Status failed = Failed();
    while (!Flush()) {
      if (errno != EAGAIN && errno != EWOULDBLOCK) return failed;
      if (!WaitFor(socket_, POLLOUT, deadline)) return Silent();
    }
    if (done == 1) break;
    if (error != SSL_ERROR_WANT_READ) return failed;
    if (!WaitFor(socket_, POLLIN, deadline)) return Silent();
  }
  if (Ssl().SSL_session_reused(ssl_) == 1) return Status::Ok();
  return {StatusCode::kPermissionDenied, "TLS failed: the peer did not prove that it has the key"};
}

// Why the handshake did.
Status TlsStream::Failed() const {
  if (ended_ == 0) {
    return {StatusCode::kUnavailable, "the peer closed the connection when TLS was to begin"};
  }
  if (ended_ > 0) return {StatusCode::kUnavailable, std::generic_category().message(ended_)};
  const char* reason = Ssl().ERR_reason_error_string(Ssl().ERR_peek_error());
  return {StatusCode::kPermissionDenied,
          std::string("TLS failed (") + (reason == nullptr ? "no reason given" : reason) +
              "): the peer does not have the key of this connection, or does not speak TLS"};
}

SSL_SESSION* TlsStream::NewSession(SSL* ssl) const {
  SSL_SESSION* session = Ssl().SSL_SESSION_new();
  const SSL_CIPHER* cipher = Ssl().SSL_CIPHER_find(ssl, kAes128GcmSha256);
  if (session != nullptr && cipher != nullptr &&
      Ssl().SSL_SESSION_set1_master_key(session, key_.data(), key_.size()) == 1 &&
      Ssl().SSL_SESSION_set_cipher(session, cipher) == 1 &&
      Ssl().SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
    return session;
  }
  if (session != nullptr) Ssl().SSL_SESSION_free(session);
  return nullptr;
}

int TlsStream::UseSession(SSL* ssl, const EVP_MD* /*digest*/, const unsigned char** identity,
                          size_t* identity_bytes, SSL_SESSION** session) {
  *session = static_cast<TlsStream*>(Ssl().SSL_get_ex_data(ssl, 0))->NewSession(ssl);
  *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
  *identity_bytes = kIdentity.size();
  return *session != nullptr ? 1 : 0;
}

int TlsStream::FindSession(SSL* ssl, const unsigned char* identity, size_t identity_bytes,
                           SSL_SESSION** session) {
  *session = nullptr;
  if (std::string_view(reinterpret_cast<const char*>(identity), identity_bytes) != kIdentity) {
    return 1;
  }
  *session = static_cast<TlsStream*>(Ssl().SSL_get_ex_data(ssl, 0))->NewSession(ssl);
  return *session != nullptr ? 1 : 0;
}

BIO_METHOD* TlsStream::Method() {
  static BIO_METHOD* const made = [] {
    BIO_METHOD* method = Ssl().BIO_meth_new(BIO_TYPE_SOURCE_SINK, "rdmabatch");
    if (method == nullptr) return method;
    Ssl().BIO_meth_set_write(method, WriteOut);
    Ssl().BIO_meth_set_read(method, ReadSocket);
    Ssl().BIO_meth_set_ctrl(
        method, [](BIO*, int what, long, void*) -> long { return what == BIO_CTRL_FLUSH ? 1 : 0; });
    return method;
  }();
  return made;
}

int TlsStream::WriteOut(BIO* bio, const char* bytes, int size) {
  auto& out = static_cast<TlsStream*>(Ssl().BIO_get_data(bio))->out_;
  out.insert(out.end(), bytes, bytes + size);
  return size;
}

int TlsStream::ReadSocket(BIO* bio, char* bytes, int size) {
  auto* stream = static_cast<TlsStream*>(Ssl().BIO_get_data(bio));
  Ssl().BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
  ssize_t n;
  do {
    n = recv(stream->socket_, bytes, static_cast<size_t>(size), MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n > 0) return static_cast<int>(n);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    Ssl().BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY);
    return -1;
  }
  stream->ended_ = n == 0 ? 0 : errno;
  return 0;
}

ssize_t TlsStream::Send(const iovec* parts, size_t count) {
  const UncheckedReads answers_to_peers;
  size_t all = 0;
  for (size_t i = 0; i < count; ++i) all += parts[i].iov_len;
  size_t sent = 0;
  while (sent < all) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (batch_ == 0 && !Encrypt(parts, count, sent)) {
      errno = EPROTO;
      return -1;
    }
    if (!Flush()) return sent != 0 ? static_cast<ssize_t>(sent) : -1;
    sent += batch_;
    batch_ = 0;
  }
  return static_cast<ssize_t>(sent);
}

bool TlsStream::Encrypt(const iovec* parts, size_t count, size_t skip) {
  record_.clear();
  for (size_t i = 0; i < count && batch_ + record_.size() < kBatchBytes; ++i) {
    const size_t here = std::min(skip, parts[i].iov_len);
    const auto* bytes = static_cast<const uint8_t*>(parts[i].iov_base) + here;
    size_t left = parts[i].iov_len - here;
    skip -= here;
    while (left != 0 && batch_ + record_.size() < kBatchBytes) {
      const size_t part = std::min(left, kRecordBytes - record_.size());
      if (part == kRecordBytes) {
        if (!EncryptRecord(bytes, part)) return false;
      } else {
        record_.insert(record_.end(), bytes, bytes + part);
        if (record_.size() == kRecordBytes) {
          if (!EncryptRecord(record_.data(), kRecordBytes)) return false;
          record_.clear();
        }
      }
      bytes += part;
      left -= part;
    }
  }
  return record_.empty() || EncryptRecord(record_.data(), record_.size());
}

bool TlsStream::EncryptRecord(const uint8_t* bytes, size_t size) {
  Ssl().ERR_clear_error();
  if (++records_ > records_per_key_) {
    records_ = 1;
    if (Ssl().SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) return false;
  }
  if (Ssl().SSL_write(ssl_, bytes, static_cast<int>(size)) != static_cast<int>(size)) return false;
  batch_ += size;
  return true;
}

bool TlsStream::Flush() {
  while (out_sent_ < out_.size()) {
    const ssize_t n =
        send(socket_, &out_[out_sent_], out_.size() - out_sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    out_sent_ += static_cast<size_t>(n);
  }
  out_.clear();
  out_sent_ = 0;
  return true;
}

ssize_t TlsStream::Receive(const iovec* parts, size_t count, size_t most) {
  const std::lock_guard<std::mutex> lock(mutex_);
  size_t got = 0;
  for (size_t i = 0; i < count && ended_ < 0; ++i) {
    auto* to = static_cast<uint8_t*>(parts[i].iov_base);
    for (size_t left = std::min(parts[i].iov_len, most - got); left != 0;) {
      Ssl().ERR_clear_error();
      const int n = Ssl().SSL_read(ssl_, to, static_cast<int>(std::min<size_t>(left, INT_MAX)));
      if (n <= 0) {
        pending_ = 0;
        const int error = Ssl().SSL_get_error(ssl_, n);
        const bool nothing_yet = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
        if (got != 0 && (nothing_yet || ended_ >= 0)) return static_cast<ssize_t>(got);
        if (nothing_yet) {
          errno = EAGAIN;
          return -1;
        }
        if (ended_ < 0) ended_ = error == SSL_ERROR_ZERO_RETURN ? 0 : EBADMSG;
        break;
      }
      to += n;
      left -= static_cast<size_t>(n);
      got += static_cast<size_t>(n);
    }
  }
  if (got != 0) {
    pending_ = ended_ < 0 ? static_cast<size_t>(Ssl().SSL_pending(ssl_)) : 0;
    return static_cast<ssize_t>(got);
  }
  if (ended_ <= 0) return 0;
  errno = ended_;
  return -1;
}

}  // namespace rdmabatch
