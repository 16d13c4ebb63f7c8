// Waiter and WaitList: operations that return before they are over.
#ifndef TF_RDMABATCH_CC_BASE_WAITER_H_
#define TF_RDMABATCH_CC_BASE_WAITER_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tf_rdmabatch/cc/base/status.h"

namespace rdmabatch {

// What is called when an operation is over: by the event that it waits for, by a deadline or by a
// cancel, whichever is first. Whoever registers a waiter shares it, so that a cancel needs to find
// it nowhere.
class Waiter {
 public:
  using Done = std::function<void(const Status&)>;

  explicit Waiter(Done done) : done_(std::move(done)) {}

  // Runs `done` in this thread, unless another call did. True when it did.
  bool End(const Status& status) {
    if (ended_.exchange(true, std::memory_order_acq_rel)) return false;
    const Done done = std::move(done_);
    done(status);
    return true;
  }
  bool ended() const { return ended_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> ended_{false};
  Done done_;  // whoever sets ended_
};

// Waiters for a number that only grows. The owner locks, and ends what it took after unlocking.
class WaitList {
 public:
  using Waiters = std::vector<std::shared_ptr<Waiter>>;

  bool empty() const { return waiting_.empty(); }
  void Add(uint64_t target, std::shared_ptr<Waiter> waiter) {
    waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(),
                                  [](const Waiting& w) { return w.waiter->ended(); }),
                   waiting_.end());
    waiting_.push_back({target, std::move(waiter)});
  }
  // The least target, or the largest number.
  uint64_t next() const {
    uint64_t least = ~uint64_t{0};
    for (const Waiting& w : waiting_) least = std::min(least, w.target);
    return least;
  }
  // Takes those out whose target is at most `reached`.
  Waiters Take(uint64_t reached = ~uint64_t{0}) {
    const auto ripe = std::stable_partition(waiting_.begin(), waiting_.end(),
                                            [&](const Waiting& w) { return w.target > reached; });
    Waiters taken;
    for (auto it = ripe; it != waiting_.end(); ++it) taken.push_back(std::move(it->waiter));
    waiting_.erase(ripe, waiting_.end());
    return taken;
  }

 private:
  struct Waiting {
    uint64_t target;
    std::shared_ptr<Waiter> waiter;
  };
  std::vector<Waiting> waiting_;
};

inline void EndAll(const WaitList::Waiters& waiters, const Status& status) {
  for (const auto& waiter : waiters) waiter->End(status);
}

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_BASE_WAITER_H_
