// StartThread: a thread of this library, with a name that debuggers show.
#ifndef TF_RDMABATCH_CC_BASE_THREAD_H_
#define TF_RDMABATCH_CC_BASE_THREAD_H_

#include <pthread.h>

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "tf_rdmabatch/cc/base/status.h"

namespace rdmabatch {

// Runs `work()` on `*thread`. `name` has at most 15 characters. kResourceExhausted when there is no
// thread to be had; `work` is gone then. Control path.
template <typename Work>
Status StartThread(const char* name, Work work, std::thread* thread) {
  try {
    *thread = std::thread(std::move(work));
  } catch (const std::system_error& error) {
    return {StatusCode::kResourceExhausted, std::string("starting a thread: ") + error.what()};
  }
  pthread_setname_np(thread->native_handle(), name);
  return Status::Ok();
}

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_BASE_THREAD_H_
