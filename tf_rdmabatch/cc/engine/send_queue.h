// SendQueue: what waits for room on one connection, most urgent first.
#ifndef TF_RDMABATCH_CC_ENGINE_SEND_QUEUE_H_
#define TF_RDMABATCH_CC_ENGINE_SEND_QUEUE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/executor.h"

namespace rdmabatch {

// One thread of the executor at a time sends for a connection, for a moment, so that a peer that
// does not read holds up nobody else for long. Thread-safe.
class SendQueue : public std::enable_shared_from_this<SendQueue> {
 public:
  // Sends until the deadline; false when it has to be called again.
  using Send = std::function<bool(Deadline)>;

  explicit SendQueue(Executor* executor) : executor_(executor) {}

  // Lower priorities come first, equal ones in order.
  void Add(int64_t priority, Send send) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      queue_.insert({priority, next_++, std::move(send)});
      if (std::exchange(busy_, true)) return;
    }
    Continue();
  }

 private:
  static constexpr double kTurnSeconds = 0.005;

  struct Entry {
    int64_t priority;
    uint64_t order;
    Send send;
    bool operator<(const Entry& other) const {
      return std::pair(priority, order) < std::pair(other.priority, other.order);
    }
  };

  void Continue() {
    executor_->Post([self = shared_from_this()] { self->Turn(); });
  }

  void Turn() {
    const Deadline end = Deadline::After(kTurnSeconds);
    std::unique_lock<std::mutex> lock(mutex_);
    while (!queue_.empty()) {
      auto entry = queue_.extract(queue_.begin());
      lock.unlock();
      const bool sent = entry.value().send(end);
      lock.lock();
      if (!sent) queue_.insert(std::move(entry));
      if (end.expired()) break;
    }
    busy_ = !queue_.empty();
    if (busy_) {
      lock.unlock();
      Continue();
    }
  }

  Executor* const executor_;
  std::mutex mutex_;
  std::set<Entry> queue_;  // mutex_
  uint64_t next_ = 0;      // mutex_
  bool busy_ = false;      // mutex_
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_SEND_QUEUE_H_
