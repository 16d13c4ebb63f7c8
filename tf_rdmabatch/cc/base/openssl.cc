#include "tf_rdmabatch/cc/base/openssl.h"

#include <dlfcn.h>

#include <string>

#include "tf_rdmabatch/cc/base/shared_library.h"

namespace rdmabatch {
namespace {

#define RDMABATCH_TEXT(value) #value
#define RDMABATCH_LIBRARY(version) "libssl.so." RDMABATCH_TEXT(version)
constexpr char kLibrary[] = RDMABATCH_LIBRARY(OPENSSL_SHLIB_VERSION);
#undef RDMABATCH_LIBRARY
#undef RDMABATCH_TEXT

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kOwnNamesFirst = 0;  // sanitizers refuse it, and have no TensorFlow in their process
#else
constexpr int kOwnNamesFirst = RTLD_DEEPBIND;
#endif

Status Unavailable(const std::string& what) {
  return {StatusCode::kUnavailable, "TLS needs OpenSSL: cannot load " + what + " (" +
                                        LoaderError() + "); on Debian: apt-get install libssl3"};
}

Status Load(OpenSsl* library) {
  void* handle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | kOwnNamesFirst);
  if (handle == nullptr) return Unavailable(kLibrary);
  const char* missing = nullptr;
#define RDMABATCH_X(name) &&ResolveSymbol(handle, #name, &library->name, &missing)
  const bool complete = true RDMABATCH_OPENSSL_SYMBOLS(RDMABATCH_X);
#undef RDMABATCH_X
  if (!complete) return Unavailable(missing);
  // Connections may still be in use while the process ends.
  library->OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr);
  return Status::Ok();
}

}  // namespace

Status LoadOpenSsl() { return LoadOnce<OpenSsl, Load>().status; }

const OpenSsl& Ssl() { return LoadOnce<OpenSsl, Load>().library; }

}  // namespace rdmabatch
