// NativeEngine: an Engine with what Python's half of it needs: a queue of messages, the two halves
// of the parameter store, and a guard against use after fork().
#ifndef TF_RDMABATCH_CC_PYTHON_NATIVE_ENGINE_H_
#define TF_RDMABATCH_CC_PYTHON_NATIVE_ENGINE_H_

#include <sys/types.h>

#include <memory>
#include <mutex>

#include "tf_rdmabatch/cc/base/counters.h"
#include "tf_rdmabatch/cc/engine/engine.h"
#include "tf_rdmabatch/cc/engine/store.h"
#include "tf_rdmabatch/cc/python/message_queue.h"
#include "tf_rdmabatch/cc/python/wait.h"

namespace rdmabatch::python {

// Thread-safe. The accessors throw StatusError in a process that was forked from the engine's.
class NativeEngine : public MessageSink {
 public:
  // Throws StatusError. The copy that a forked process has is never destroyed: its threads are not
  // there.
  static std::shared_ptr<NativeEngine> Create(const EngineOptions& options,
                                              uint64_t receive_buffer);
  NativeEngine(const EngineOptions& options, uint64_t receive_buffer);

  Engine& engine() { return CheckProcess(), *engine_; }
  ParameterServer& server() { return CheckProcess(), server_; }
  ParameterClient& client() { return CheckProcess(), client_; }
  MessageQueue& queue() { return CheckProcess(), queue_; }
  LeftBehind& left_behind() { return left_behind_; }
  Waits& waits() { return waits_; }
  void CheckProcess() const;

  // Of the engine and of the parameter store, since the last ResetCounters.
  CounterValues counters();
  void ResetCounters();

  // Ends every wait, every connection and every thread. Idempotent; in a forked process nothing.
  void Close();

  void OnConnected(Connection& connection) override;
  Disposition OnMessage(Connection& connection, const IncomingMessage& message) override;
  void OnClosed(Connection& connection, const Status& status) override;

 private:
  const pid_t process_;
  MessageQueue queue_;
  ParameterServer server_;
  ParameterClient client_;
  LeftBehind left_behind_;
  Waits waits_;
  std::mutex baseline_mutex_;
  CounterValues baseline_;          // of the store
  std::unique_ptr<Engine> engine_;  // last: its threads use all of the above
};

struct NativeConnection {
  std::shared_ptr<NativeEngine> engine;
  std::shared_ptr<Connection> connection;
  std::shared_ptr<MessageQueue::Inbox> inbox;

  Connection* operator->() const { return engine->CheckProcess(), connection.get(); }
};

// Throws when the engine is another process's.
inline NativeConnection Wrap(std::shared_ptr<NativeEngine> engine,
                             std::shared_ptr<Connection> connection) {
  auto inbox = engine->queue().InboxOf(*connection);
  return {std::move(engine), std::move(connection), std::move(inbox)};
}

}  // namespace rdmabatch::python

#endif  // TF_RDMABATCH_CC_PYTHON_NATIVE_ENGINE_H_
