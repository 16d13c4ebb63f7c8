#ifndef TF_RDMABATCH_TESTS_CC_TOOLS_NEED_H_
#define TF_RDMABATCH_TESTS_CC_TOOLS_NEED_H_

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "tf_rdmabatch/cc/base/status.h"

namespace rdmabatch {

// A Result that is not OK ends the program, which is a test's.
template <typename T>
T Need(Result<T> result, const char* what) {
  if (result.ok()) return std::move(*result);
  std::fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what,
               result.status().message().c_str());
  std::exit(1);
}

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_TESTS_CC_TOOLS_NEED_H_
