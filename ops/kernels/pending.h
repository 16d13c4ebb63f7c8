// Kernels that end later.
#ifndef OPS_KERNELS_PENDING_H_
#define OPS_KERNELS_PENDING_H_

#include <functional>
#include <memory>
#include <string>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/base/waiter.h"
#include "tf_rdmabatch/cc/engine/task.h"

namespace rdmabatch::ops {

// An asynchronous kernel's run. `what` begins the message when the wait was too long.
struct Run {
  tensorflow::OpKernelContext* context;
  tensorflow::AsyncOpKernel::DoneCallback done;
  std::shared_ptr<Task> task;
  double timeout_seconds;
  std::string what;

  void End(const Status& status) const;
};

// A waiter that ends the run when it ends: after `finish`, on one of the task's threads, where
// nothing has failed before. Cancelling the step ends it, and so does the timeout.
std::shared_ptr<Waiter> Pend(const Run& run, std::function<Status()> finish);

// `count` waiters that together end `whole`: when all have ended, or one with an error.
class Join {
 public:
  Join(std::shared_ptr<Waiter> whole, size_t count);
  std::shared_ptr<Waiter> Part() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace rdmabatch::ops

#endif  // OPS_KERNELS_PENDING_H_
