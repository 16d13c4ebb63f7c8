// Deadlines: ends waiters that have waited too long.
#ifndef TF_RDMABATCH_CC_ENGINE_DEADLINES_H_
#define TF_RDMABATCH_CC_ENGINE_DEADLINES_H_

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/timers.h"
#include "tf_rdmabatch/cc/base/waiter.h"

namespace rdmabatch {

// Looks at what waits every kPeriodSeconds while something does: mostly it has ended by then, and
// thousands that come and go cost one timer. What is watched when the timers are stopped is
// forgotten. Thread-safe.
class Deadlines {
 public:
  // Used until the timers are stopped.
  explicit Deadlines(Timers* timers) : timers_(timers) {}
  Deadlines(const Deadlines&) = delete;
  Deadlines& operator=(const Deadlines&) = delete;

  // Ends `waiter` with kDeadlineExceeded at the deadline, or up to kPeriodSeconds later.
  void Add(const std::shared_ptr<Waiter>& waiter, Deadline deadline, std::string what) {
    bool first;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      first = watched_.empty();
      watched_.push_back({waiter, deadline, std::move(what)});
    }
    if (first) LookLater();
  }

 private:
  static constexpr double kPeriodSeconds = 0.2;

  struct Watched {
    std::weak_ptr<Waiter> waiter;
    Deadline deadline;
    std::string what;
  };

  void LookLater() {
    timers_->Add(std::make_shared<Waiter>([this](const Status& time) {
                   if (time.ok()) Look();
                 }),
                 Deadline::After(kPeriodSeconds));
  }

  void Look() {
    std::vector<std::pair<std::shared_ptr<Waiter>, std::string>> late;
    bool more;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      std::vector<Watched> rest;
      for (Watched& watched : watched_) {
        auto waiter = watched.waiter.lock();
        if (waiter == nullptr || waiter->ended()) continue;
        if (watched.deadline.expired()) {
          late.emplace_back(std::move(waiter), std::move(watched.what));
        } else {
          rest.push_back(std::move(watched));
        }
      }
      watched_.swap(rest);
      more = !watched_.empty();
    }
    if (more) LookLater();
    for (const auto& [waiter, what] : late) {
      waiter->End({StatusCode::kDeadlineExceeded, what + " missed its deadline"});
    }
  }

  Timers* const timers_;
  std::mutex mutex_;
  std::vector<Watched> watched_;  // mutex_; while there are any, a timer looks at them
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_DEADLINES_H_
