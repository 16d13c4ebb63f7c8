#include "ops/kernels/pending.h"

#include <atomic>
#include <utility>

#include "ops/kernels/status.h"
#include "tensorflow/core/framework/cancellation.h"

namespace rdmabatch::ops {

void Run::End(const Status& status) const {
  context->SetStatus(ToAbsl(status));
  done();
}

std::shared_ptr<Waiter> Pend(const Run& run, std::function<Status()> finish) {
  tensorflow::CancellationManager* const cancellation = run.context->cancellation_manager();
  const auto token = cancellation == nullptr ? 0 : cancellation->get_cancellation_token();
  const auto end = [run, finish = std::move(finish), cancellation, token](const Status& status) {
    // A cancel may hold locks of TensorFlow's, and the progress thread has other things to do.
    run.task->Post([run, finish, cancellation, token, status] {
      const Status finished = status.ok() ? finish() : status;
      // Not the call that waits for a callback under way: that one holds a waiter which has ended.
      if (cancellation != nullptr) (void)cancellation->TryDeregisterCallback(token);
      run.End(finished);
    });
  };
  auto waiter = std::make_shared<Waiter>(end);
  run.task->Expire(waiter, Deadline::After(run.timeout_seconds), run.what);
  const auto cancel = [waiter, what = run.what] {
    waiter->End({StatusCode::kCancelled, what + " was cancelled"});
  };
  if (cancellation != nullptr && !cancellation->RegisterCallback(token, cancel)) cancel();
  return waiter;
}

struct Join::State {
  std::shared_ptr<Waiter> whole;
  std::atomic<size_t> left;
};

Join::Join(std::shared_ptr<Waiter> whole, size_t count)
    : state_(new State{std::move(whole), {count}}) {}

std::shared_ptr<Waiter> Join::Part() const {
  return std::make_shared<Waiter>([state = state_](const Status& status) {
    if (!status.ok() || state->left.fetch_sub(1) == 1) state->whole->End(status);
  });
}

}  // namespace rdmabatch::ops
