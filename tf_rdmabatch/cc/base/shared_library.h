// Libraries that are loaded at run time, so that a process does without where they are missing.
#ifndef TF_RDMABATCH_CC_BASE_SHARED_LIBRARY_H_
#define TF_RDMABATCH_CC_BASE_SHARED_LIBRARY_H_

#include <dlfcn.h>

#include <string>

#include "tf_rdmabatch/cc/base/status.h"

namespace rdmabatch {

// Finds `symbol`, or notes it as missing.
template <typename Function>
bool ResolveSymbol(void* handle, const char* symbol, Function* function, const char** missing) {
  *function = reinterpret_cast<Function>(dlsym(handle, symbol));
  if (*function == nullptr) *missing = symbol;
  return *function != nullptr;
}

// What the loader says of the last failure on this thread.
inline std::string LoaderError() {
  const char* reason = dlerror();
  return reason == nullptr ? "unknown reason" : reason;
}

// A table of functions, and whether it is complete.
template <typename Library>
struct LoadedLibrary {
  Library library;
  Status status;
};

// Returns what `Fill` made of a table at the first call. Thread-safe. Never destroyed: functions
// may be called while the process ends.
template <typename Library, Status (*Fill)(Library*)>
const LoadedLibrary<Library>& LoadOnce() {
  static const auto* loaded = [] {
    auto* result = new LoadedLibrary<Library>;
    result->status = Fill(&result->library);
    return result;
  }();
  return *loaded;
}

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_BASE_SHARED_LIBRARY_H_
