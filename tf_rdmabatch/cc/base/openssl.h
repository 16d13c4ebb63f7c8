// OpenSSL's TLS, loaded at run time.
//
// It is not linked, since TensorFlow has another library with the same names (BoringSSL) in each
// process's global scope, where a linked name would be found first. What is called through this
// table is OpenSSL's, and what OpenSSL calls is its own.
#ifndef TF_RDMABATCH_CC_BASE_OPENSSL_H_
#define TF_RDMABATCH_CC_BASE_OPENSSL_H_

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "tf_rdmabatch/cc/base/status.h"

namespace rdmabatch {

#define RDMABATCH_OPENSSL_SYMBOLS(X)   \
  X(BIO_clear_flags)                   \
  X(BIO_get_data)                      \
  X(BIO_meth_new)                      \
  X(BIO_meth_set_ctrl)                 \
  X(BIO_meth_set_read)                 \
  X(BIO_meth_set_write)                \
  X(BIO_new)                           \
  X(BIO_set_data)                      \
  X(BIO_set_flags)                     \
  X(BIO_set_init)                      \
  X(ERR_clear_error)                   \
  X(ERR_peek_error)                    \
  X(ERR_reason_error_string)           \
  X(OPENSSL_init_ssl)                  \
  X(SSL_CIPHER_find)                   \
  X(SSL_CTX_ctrl)                      \
  X(SSL_CTX_new)                       \
  X(SSL_CTX_set_ciphersuites)          \
  X(SSL_CTX_set_num_tickets)           \
  X(SSL_SESSION_free)                  \
  X(SSL_SESSION_new)                   \
  X(SSL_SESSION_set1_master_key)       \
  X(SSL_SESSION_set_cipher)            \
  X(SSL_SESSION_set_protocol_version)  \
  X(SSL_do_handshake)                  \
  X(SSL_free)                          \
  X(SSL_get_error)                     \
  X(SSL_get_ex_data)                   \
  X(SSL_key_update)                    \
  X(SSL_new)                           \
  X(SSL_pending)                       \
  X(SSL_read)                          \
  X(SSL_session_reused)                \
  X(SSL_set_accept_state)              \
  X(SSL_set_bio)                       \
  X(SSL_set_connect_state)             \
  X(SSL_set_ex_data)                   \
  X(SSL_set_psk_find_session_callback) \
  X(SSL_set_psk_use_session_callback)  \
  X(SSL_set_verify)                    \
  X(SSL_write)                         \
  X(TLS_method)

// Members are named like the functions. Macros of the headers call functions by name: not to be
// used.
struct OpenSsl {
#define RDMABATCH_X(name) decltype(&::name) name = nullptr;
  RDMABATCH_OPENSSL_SYMBOLS(RDMABATCH_X)
#undef RDMABATCH_X
};

// Loads the library at the first call; later calls return the same answer. kUnavailable says what
// is missing and how to get it. Thread-safe. The library stays loaded.
Status LoadOpenSsl();

// Only after LoadOpenSsl() returned OK.
const OpenSsl& Ssl();

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_BASE_OPENSSL_H_
