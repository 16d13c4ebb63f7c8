// The progress thread: perceives arrivals, serves lanes that wait for completions, sleeps when
// there is nothing to do. One an engine.
#ifndef TF_RDMABATCH_CC_ENGINE_PROGRESS_H_
#define TF_RDMABATCH_CC_ENGINE_PROGRESS_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tf_rdmabatch/cc/base/counters.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/base/unique_fd.h"
#include "tf_rdmabatch/cc/engine/connection.h"
#include "tf_rdmabatch/cc/transport/transport.h"

namespace rdmabatch {

class ProgressThread {
 public:
  // `spin_us` as in EngineOptions.
  ProgressThread(std::vector<std::shared_ptr<Transport>> transports, double spin_us);
  ~ProgressThread() { Stop(); }

  Status Start();
  // Joins the thread. Idempotent; not from the progress thread itself.
  void Stop();

  // The thread keeps the connection until Remove; what arrives meanwhile finds it alive. Any
  // thread.
  void Add(std::shared_ptr<Connection> connection);
  void Remove(Connection* connection);
  // Ends a sleep, so that the next one is armed for endpoints that were made meanwhile.
  void Wake() {
    Enqueue([] {});
  }
  // Runs `task` on the progress thread once what has arrived by now was handled.
  void AfterArrivals(std::function<void()> task);

  uint64_t wakeups() const { return wakeups_.value(); }

 private:
  void Run();
  bool Poll();
  void Arrive(const Completion& completion);
  bool ServeLanes();
  // True when there was a task.
  bool RunTasks();
  void Sleep();
  void Enqueue(std::function<void()> task);

  const std::vector<std::shared_ptr<Transport>> transports_;
  const int64_t spin_ns_;
  UniqueFd epoll_;
  UniqueFd wake_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  Counter wakeups_;

  std::vector<std::shared_ptr<Connection>> connections_;  // progress thread
  std::vector<Lane*> arrived_;                            // progress thread, within one Poll
  std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;
  std::atomic<bool> has_tasks_{false};
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_PROGRESS_H_
