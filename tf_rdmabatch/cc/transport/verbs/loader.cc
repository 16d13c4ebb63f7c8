#include "tf_rdmabatch/cc/transport/verbs/loader.h"

#include <dlfcn.h>

#include <string>

namespace rdmabatch {
namespace verbs {
namespace {

struct Loaded {
  Library library;
  Status status;
};

Status Unavailable(const char* library) {
  const char* reason = dlerror();
  return {StatusCode::kUnavailable,
          std::string("cannot load ") + library + " (" + (reason ? reason : "unknown reason") +
              "); on Debian: apt-get install libibverbs1 librdmacm1 ibverbs-providers"};
}

// Finds `symbol`, or notes it as missing.
template <typename Function>
bool Resolve(void* handle, const char* symbol, Function* function, const char** missing) {
  *function = reinterpret_cast<Function>(dlsym(handle, symbol));
  if (*function == nullptr) *missing = symbol;
  return *function != nullptr;
}

Status Load(Library* library) {
  void* ibv = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (ibv == nullptr) return Unavailable("libibverbs.so.1");
  void* cm = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);
  if (cm == nullptr) return Unavailable("librdmacm.so.1");
  const char* missing = nullptr;
#define RDMABATCH_IBV(name) &&Resolve(ibv, "ibv_" #name, &library->ibv.name, &missing)
#define RDMABATCH_CM(name) &&Resolve(cm, "rdma_" #name, &library->cm.name, &missing)
  const bool complete =
      true RDMABATCH_IBVERBS_SYMBOLS(RDMABATCH_IBV) RDMABATCH_RDMACM_SYMBOLS(RDMABATCH_CM);
#undef RDMABATCH_CM
#undef RDMABATCH_IBV
  return complete ? Status::Ok() : Unavailable(missing);
}

// Never destroyed: endpoints may be closed while the process ends.
const Loaded& Get() {
  static const Loaded* loaded = [] {
    auto* result = new Loaded;
    result->status = Load(&result->library);
    return result;
  }();
  return *loaded;
}

}  // namespace

Status LoadLibrary() { return Get().status; }

const Library& Lib() { return Get().library; }

}  // namespace verbs
}  // namespace rdmabatch
