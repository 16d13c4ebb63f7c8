// Deadlines: ends waiters that have waited too long.
#ifndef TF_RDMABATCH_CC_ENGINE_DEADLINES_H_
#define TF_RDMABATCH_CC_ENGINE_DEADLINES_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/thread.h"
#include "tf_rdmabatch/cc/base/waiter.h"

namespace rdmabatch {

// A thread that looks at what waits every kPeriod, and sleeps when nothing does. Thread-safe.
class Deadlines {
 public:
  Deadlines() = default;
  ~Deadlines() { Stop(); }
  Deadlines(const Deadlines&) = delete;
  Deadlines& operator=(const Deadlines&) = delete;

  Status Start() {
    return StartThread(
        "rdmabatch-dead", [this] { Run(); }, &thread_);
  }

  // Ends `waiter` with kDeadlineExceeded at the deadline, or up to kPeriod later.
  void Add(const std::shared_ptr<Waiter>& waiter, Deadline deadline, std::string what) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      watched_.push_back({waiter, deadline, std::move(what)});
    }
    ready_.notify_one();
  }

  // Idempotent. What is watched is forgotten.
  void Stop() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    ready_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

 private:
  static constexpr std::chrono::milliseconds kPeriod{200};

  struct Watched {
    std::weak_ptr<Waiter> waiter;
    Deadline deadline;
    std::string what;
  };

  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stop_) {
      ready_.wait(lock, [this] { return stop_ || !watched_.empty(); });
      ready_.wait_for(lock, kPeriod, [this] { return stop_; });
      const auto late = TakeLate();
      lock.unlock();
      for (const auto& [waiter, what] : late) {
        waiter->End({StatusCode::kDeadlineExceeded, what + " missed its deadline"});
      }
      lock.lock();
    }
  }

  std::vector<std::pair<std::shared_ptr<Waiter>, std::string>> TakeLate() {
    std::vector<std::pair<std::shared_ptr<Waiter>, std::string>> late;
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
    return late;
  }

  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<Watched> watched_;  // mutex_
  bool stop_ = false;             // mutex_
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_DEADLINES_H_
