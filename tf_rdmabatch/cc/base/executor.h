// Executor: a few threads that run jobs in turn.
#ifndef TF_RDMABATCH_CC_BASE_EXECUTOR_H_
#define TF_RDMABATCH_CC_BASE_EXECUTOR_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/base/thread.h"

namespace rdmabatch {

// Jobs must not wait for each other. Thread-safe.
class Executor {
 public:
  Executor() = default;
  ~Executor() { Stop(); }
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // `name` has at most 15 characters.
  Status Start(const char* name, int threads) {
    for (int i = 0; i < threads; ++i) {
      std::thread thread;
      RDMABATCH_RETURN_IF_ERROR(StartThread(
          name, [this] { Run(); }, &thread));
      threads_.push_back(std::move(thread));
    }
    return Status::Ok();
  }

  // In this thread once the executor was stopped.
  void Post(std::function<void()> job) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!stopped_) {
        jobs_.push_back(std::move(job));
        job = nullptr;
      }
    }
    if (job) {
      job();
    } else {
      ready_.notify_one();
    }
  }

  // Runs what was posted and joins the threads. Idempotent; not from a job.
  void Stop() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopped_ = true;
    }
    ready_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    while (!jobs_.empty()) {
      const auto job = std::move(jobs_.front());
      jobs_.pop_front();
      job();
    }
  }

 private:
  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      ready_.wait(lock, [this] { return stopped_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      auto job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      job = nullptr;
      lock.lock();
    }
  }

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> jobs_;  // mutex_
  bool stopped_ = false;                    // mutex_
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_BASE_EXECUTOR_H_
