#include "tf_rdmabatch/cc/transport/verbs/loader.h"

#include <dlfcn.h>

#include <string>

#include "tf_rdmabatch/cc/base/shared_library.h"

namespace rdmabatch {
namespace verbs {
namespace {

Status Unavailable(const char* library) {
  return {StatusCode::kUnavailable,
          std::string("cannot load ") + library + " (" + LoaderError() +
              "); on Debian: apt-get install libibverbs1 librdmacm1 ibverbs-providers"};
}

Status Load(Library* library) {
  void* ibv = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (ibv == nullptr) return Unavailable("libibverbs.so.1");
  void* cm = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);
  if (cm == nullptr) return Unavailable("librdmacm.so.1");
  const char* missing = nullptr;
#define RDMABATCH_IBV(name) &&ResolveSymbol(ibv, "ibv_" #name, &library->ibv.name, &missing)
#define RDMABATCH_CM(name) &&ResolveSymbol(cm, "rdma_" #name, &library->cm.name, &missing)
  const bool complete =
      true RDMABATCH_IBVERBS_SYMBOLS(RDMABATCH_IBV) RDMABATCH_RDMACM_SYMBOLS(RDMABATCH_CM);
#undef RDMABATCH_CM
#undef RDMABATCH_IBV
  return complete ? Status::Ok() : Unavailable(missing);
}

}  // namespace

Status LoadLibrary() { return LoadOnce<Library, Load>().status; }

const Library& Lib() { return LoadOnce<Library, Load>().library; }

}  // namespace verbs
}  // namespace rdmabatch
