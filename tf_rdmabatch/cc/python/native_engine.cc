#include "tf_rdmabatch/cc/python/native_engine.h"

#include <unistd.h>

#include "tf_rdmabatch/cc/python/status_error.h"

namespace rdmabatch::python {
namespace {

// Threads that were woken only need the GIL to return.
constexpr double kReturnSeconds = 2;

}  // namespace

NativeEngine::NativeEngine(const EngineOptions& options, uint64_t receive_buffer)
    : process_(getpid()), queue_(receive_buffer) {
  engine_ = Take(Engine::Create(options, this));
  server_.Attach(engine_.get());
  client_.Attach(engine_.get());
}

std::shared_ptr<NativeEngine> NativeEngine::Create(const EngineOptions& options,
                                                   uint64_t receive_buffer) {
  return std::shared_ptr<NativeEngine>(new NativeEngine(options, receive_buffer),
                                       [](NativeEngine* engine) {
                                         if (engine->process_ != getpid()) return;
                                         engine->Close();
                                         delete engine;
                                       });
}

void NativeEngine::CheckProcess() const {
  if (process_ == getpid()) return;
  throw StatusError({StatusCode::kFailedPrecondition,
                     "this engine belongs to process " + std::to_string(process_) +
                         ", from which this one was forked: create an engine after the fork, or "
                         "start processes with the method spawn"});
}

CounterValues NativeEngine::counters() {
  CounterValues values = engine().counters();
  values += server_.counters();
  values += client_.counters();
  std::lock_guard<std::mutex> lock(baseline_mutex_);
  values -= baseline_;
  return values;
}

void NativeEngine::ResetCounters() {
  engine().ResetCounters();
  CounterValues now = server_.counters();
  now += client_.counters();
  std::lock_guard<std::mutex> lock(baseline_mutex_);
  baseline_ = now;
}

void NativeEngine::Close() {
  if (process_ != getpid()) return;
  queue_.Stop();
  client_.Cancel();
  server_.Cancel();
  engine_->Shutdown();
  left_behind_.Join();
  waits_.AwaitNone(Deadline::After(kReturnSeconds));
}

void NativeEngine::OnConnected(Connection& connection) {
  queue_.OnConnected(connection);
  server_.OnConnected(connection);
  client_.OnConnected(connection);
}

Disposition NativeEngine::OnMessage(Connection& connection, const IncomingMessage& message) {
  switch (message.kind) {
    case MessageKind::kOpen:
    case MessageKind::kPush:
    case MessageKind::kPulled:
      return server_.OnMessage(connection, message);
    case MessageKind::kOpened:
    case MessageKind::kPublished:
    case MessageKind::kRefused:
      return client_.OnMessage(connection, message);
    case MessageKind::kUser:
      return queue_.OnMessage(connection, message);
  }
  return Disposition::kViolate;
}

void NativeEngine::OnClosed(Connection& connection, const Status& status) {
  queue_.OnClosed(connection, status);
  server_.OnClosed(connection, status);
  client_.OnClosed(connection, status);
}

}  // namespace rdmabatch::python
