// Waiting for the engine from Python: without the GIL, and so that Ctrl-C ends it.
//
// Signals are handled by Python's main thread alone, so other threads wait in one go.
#ifndef TF_RDMABATCH_CC_PYTHON_WAIT_H_
#define TF_RDMABATCH_CC_PYTHON_WAIT_H_

#include <pybind11/pybind11.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/python/status_error.h"

namespace rdmabatch::python {

inline constexpr double kSliceSeconds = 0.05;

inline bool OnMainThread() { return syscall(SYS_gettid) == getpid(); }

// Counts threads that wait for an engine without the GIL. A thread that comes back for the GIL
// while the interpreter ends is made to exit, which C++ frames do not survive: so closing an
// engine, which wakes them, also waits until they have it.
class Waits {
 public:
  // The GIL is released while it exists.
  class Unlocked {
   public:
    explicit Unlocked(Waits& waits) : counted_(waits.count_) {}

   private:
    struct Counted {
      explicit Counted(std::atomic<int>& all) : count(all) { ++count; }
      ~Counted() { --count; }
      std::atomic<int>& count;
    };
    Counted counted_;
    pybind11::gil_scoped_release released_;  // last: the GIL is back before the count goes down
  };

  // Without the GIL.
  void AwaitNone(Deadline deadline) const {
    while (count_.load() > 0 && !deadline.expired()) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

 private:
  std::atomic<int> count_{0};
};

// For waits that can be given up and taken up again: calls `wait(Deadline) -> Status` until it
// returns anything but kDeadlineExceeded, or `timeout` seconds are over. Throws what it returned.
template <typename Wait>
void WaitInSlices(Waits& waits, double timeout, Wait wait) {
  const Deadline end = Deadline::After(timeout);
  const bool slices = OnMainThread();
  for (;;) {
    const Deadline slice = Deadline::After(kSliceSeconds);
    const bool last = !slices || end.at_ns() <= slice.at_ns();
    Status status;
    {
      Waits::Unlocked unlocked(waits);
      status = wait(last ? end : slice);
    }
    if (last || status.code() != StatusCode::kDeadlineExceeded) return Check(std::move(status));
    if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
  }
}

// For work that a deadline would break: `work() -> R` runs on a thread of its own while this one
// watches for signals. `cancel` makes it return soon; the result of a cancelled run is lost.
template <typename Work, typename Cancel>
auto RunWatched(Waits& waits, Work work, Cancel cancel) -> decltype(work()) {
  if (!OnMainThread()) {
    Waits::Unlocked unlocked(waits);
    return work();
  }
  auto result = std::async(std::launch::async, std::move(work));
  for (;;) {
    {
      Waits::Unlocked unlocked(waits);
      if (result.wait_for(std::chrono::duration<double>(kSliceSeconds)) ==
          std::future_status::ready) {
        break;
      }
    }
    if (PyErr_CheckSignals() == 0) continue;
    pybind11::error_already_set interrupted;
    {
      Waits::Unlocked unlocked(waits);
      cancel();
      result.wait();
    }
    throw interrupted;
  }
  return result.get();
}

// Work that can be neither sliced nor cancelled: a caller who is interrupted leaves it behind, and
// Join, which runs once the engine was shut down, waits for its end. Thread-safe. The work may use
// whatever outlives Join.
class LeftBehind {
 public:
  // `work() -> Result<T>`; `undo(T&)` gets a result that nobody takes any more.
  template <typename T, typename Work, typename Undo>
  T Run(Waits& waits, Work work, Undo undo) {
    if (!OnMainThread()) {
      Waits::Unlocked unlocked(waits);
      return Take<T>(work());
    }
    auto abandoned = std::make_shared<std::atomic<bool>>(false);
    std::future<Result<T>> result =
        std::async(std::launch::async, [work = std::move(work), undo, abandoned]() -> Result<T> {
          Result<T> made = work();
          if (!abandoned->load() || !made.ok()) return made;
          undo(*made);
          return Status(StatusCode::kCancelled, "interrupted");
        });
    for (;;) {
      {
        Waits::Unlocked unlocked(waits);
        if (result.wait_for(std::chrono::duration<double>(kSliceSeconds)) ==
            std::future_status::ready) {
          break;
        }
      }
      if (PyErr_CheckSignals() == 0) continue;
      pybind11::error_already_set interrupted;
      abandoned->store(true);
      Leave([rest = std::make_shared<std::future<Result<T>>>(std::move(result)), undo] {
        Result<T> late = rest->get();
        if (late.ok()) undo(*late);
      });
      throw interrupted;
    }
    return Take<T>(result.get());
  }

  void Join() {
    std::vector<std::function<void()>> ends;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ends.swap(ends_);
    }
    for (const auto& end : ends) end();
  }

 private:
  void Leave(std::function<void()> end) {
    std::lock_guard<std::mutex> lock(mutex_);
    ends_.push_back(std::move(end));
  }

  std::mutex mutex_;
  std::vector<std::function<void()>> ends_;
};

}  // namespace rdmabatch::python

#endif  // TF_RDMABATCH_CC_PYTHON_WAIT_H_
