#include "tf_rdmabatch/cc/engine/task.h"

#include <algorithm>

#include "tf_rdmabatch/cc/base/log.h"
#include "tf_rdmabatch/cc/base/time_waited.h"

namespace rdmabatch {
namespace {

// A wait for a peer looks this often whether it is still wanted.
constexpr double kConnectSeconds = 1;
// Priority of what opens a parameter: everything else waits for it.
constexpr int64_t kFirst = -1;

std::string Described(const ParameterSpec& spec) {
  std::string text = std::string(DTypeName(spec.dtype)) + " [";
  for (size_t i = 0; i < spec.shape.size(); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(spec.shape[i]);
  }
  return text + "]";
}

Status CheckSame(const ParameterSpec& known, const ParameterSpec& expected) {
  if (known.dtype == expected.dtype && known.shape == expected.shape) return Status::Ok();
  return {StatusCode::kInvalidArgument, "parameter \"" + known.name + "\" is " + Described(known) +
                                            ", not " + Described(expected)};
}

Status Unreached(const std::string& peer, const std::string& address, const Status& why) {
  return {why.code(), "connecting to " + peer + " at " + address + ": " + why.message()};
}

// Never destroyed: the threads of the last task may outlive static objects.
struct Registry {
  std::mutex mutex;
  std::shared_ptr<Task> current;  // mutex
};

Registry& TheRegistry() {
  static auto& registry = *new Registry();
  return registry;
}

}  // namespace

Result<std::shared_ptr<Task>> Task::Create(const TaskOptions& options) {
  std::shared_ptr<Task> task(new Task(options));
  RDMABATCH_RETURN_IF_ERROR(task->Begin());
  return task;
}

Result<std::shared_ptr<Task>> Task::Start(const TaskOptions& options) {
  StopCurrent();
  auto task = Create(options);
  if (!task.ok()) return task;
  std::shared_ptr<Task> other;
  {
    std::lock_guard<std::mutex> lock(TheRegistry().mutex);
    other = std::exchange(TheRegistry().current, *task);
  }
  if (other != nullptr) other->Stop();
  return task;
}

std::shared_ptr<Task> Task::Current() {
  std::lock_guard<std::mutex> lock(TheRegistry().mutex);
  return TheRegistry().current;
}

void Task::StopCurrent() {
  std::shared_ptr<Task> task;
  {
    std::lock_guard<std::mutex> lock(TheRegistry().mutex);
    task.swap(TheRegistry().current);
  }
  if (task != nullptr) task->Stop();
}

Task::Task(TaskOptions options) : options_(std::move(options)) {
  if (!options_.tune_blocks) return;
  tuner_ = std::make_unique<BlockTuner>(
      BlockTuner::SizesFor(options_.engine.slot_bytes), [this](const std::string& report) {
        executor_.Post([report] { Log(LogLevel::kInfo, report); });
      });
}
Task::~Task() { Stop(); }

Status Task::Begin() {
  RDMABATCH_RETURN_IF_ERROR(executor_.Start("rdmabatch-task", std::max(1, options_.threads)));
  RDMABATCH_RETURN_IF_ERROR(control_.Start("rdmabatch-peer", 1));
  RDMABATCH_RETURN_IF_ERROR(timers_.Start());
  auto engine = Engine::Create(options_.engine, this);
  if (!engine.ok()) return engine.status();
  engine_ = std::move(*engine);
  server_.Attach(engine_.get());
  client_.Attach(engine_.get());
  auto address = engine_->Listen(options_.listen);
  if (!address.ok()) return address.status();
  address_ = *address;
  return Status::Ok();
}

void Task::Stop() {
  std::lock_guard<std::mutex> lock(stop_mutex_);
  stopping_.store(true, std::memory_order_release);
  client_.Cancel();
  server_.Cancel();
  if (engine_ != nullptr) engine_->Shutdown();
  timers_.Stop();
  control_.Stop();
  executor_.Stop();
}

CounterValues Task::counters() const {
  CounterValues values = engine_->counters();
  values += server_.counters();
  values += client_.counters();
  values += counters_.values();
  return values;
}

std::vector<std::pair<std::string, std::string>> Task::Transports() const {
  std::map<std::string, std::string> transports;
  for (const auto& connection : engine_->connections()) {
    transports[connection->peer().name] = connection->choice();
  }
  return {transports.begin(), transports.end()};
}

Status Task::Connect(const std::string& peer, const std::string& address, Deadline deadline,
                     const Waiter& until) {
  if (auto known = PeerOf(peer); known.ok() && !known->connection->closed()) return Status::Ok();
  while (true) {
    if (stopping_.load(std::memory_order_acquire) || until.ended()) {
      return {StatusCode::kCancelled, "connecting to " + peer + " was cancelled"};
    }
    const Deadline turn = Deadline::After(kConnectSeconds);
    const bool last = deadline.at_ns() <= turn.at_ns();
    const Deadline agreement = Deadline::After(options_.engine.handshake_timeout_s);
    auto connection =
        engine_->Connect(address, last ? deadline : turn,
                         last || deadline.at_ns() < agreement.at_ns() ? deadline : agreement);
    if (connection.ok()) {
      std::lock_guard<std::mutex> lock(mutex_);
      peers_[peer] = {std::move(*connection), std::make_shared<SendQueue>(&executor_)};
      return Status::Ok();
    }
    if (last || deadline.expired() || connection.status().code() != StatusCode::kDeadlineExceeded) {
      return Unreached(peer, address, connection.status());
    }
  }
}

Result<Task::Peer> Task::PeerOf(const std::string& name) const {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = peers_.find(name);
  if (it == peers_.end()) {
    return Status(
        StatusCode::kFailedPrecondition,
        "task " + options_.engine.name + " has no connection to " + name + ": connect it first");
  }
  return it->second;
}

Result<std::shared_ptr<RemoteParameter>> Task::Remote(const std::string& server,
                                                      const ParameterSpec& expected) {
  auto peer = PeerOf(server);
  if (!peer.ok()) return peer.status();
  std::lock_guard<std::mutex> lock(mutex_);
  auto& parameter = parameters_[{server, expected.name}];
  if (parameter == nullptr) parameter = std::make_shared<RemoteParameter>(server, expected);
  RDMABATCH_RETURN_IF_ERROR(CheckSame(parameter->expected, expected));
  return parameter;
}

void Task::WhenVersion(const std::shared_ptr<RemoteParameter>& parameter, uint64_t version,
                       std::shared_ptr<Waiter> waiter) {
  if (parameter->opened() != nullptr) {
    return client_.WhenVersion(*parameter->opened(), version, std::move(waiter));
  }
  WhenOpen(parameter, std::make_shared<Waiter>([=](const Status& status) {
             if (!status.ok()) {
               waiter->End(status);
             } else {
               client_.WhenVersion(*parameter->opened(), version, waiter);
             }
           }));
}

Status Task::Send(const RemoteParameter& parameter, const Contribution& c, Deadline deadline) {
  if (c.data == nullptr) {
    return client_.PushNothing(*parameter.opened(), c.step, c.contributor, deadline);
  }
  if (tuner_ != nullptr) client_.SetMessageBytes(tuner_->Next(c.step, NowNs()));
  return client_.Push(*parameter.opened(), c.step, c.contributor, c.data, c.bytes, deadline);
}

Status Task::TryPush(const RemoteParameter& parameter, const Contribution& contribution) {
  if (parameter.opened() == nullptr) return {StatusCode::kDeadlineExceeded, "it is not open yet"};
  return Send(parameter, contribution, Deadline::After(0));
}

void Task::Push(const std::shared_ptr<RemoteParameter>& parameter, const Contribution& contribution,
                int64_t priority, std::shared_ptr<Waiter> waiter) {
  auto peer = PeerOf(parameter->server);
  if (!peer.ok()) {
    waiter->End(peer.status());
    return;
  }
  const auto send = [this, parameter, contribution, waiter](Deadline deadline) {
    if (waiter->ended()) return true;
    const int64_t waited = TimeWaited();
    const Status sent = Send(*parameter, contribution, deadline);
    times_.WaitedForRoom(TimeWaited() - waited);
    if (sent.code() == StatusCode::kDeadlineExceeded) return false;
    waiter->End(sent);
    return true;
  };
  WhenOpen(parameter, std::make_shared<Waiter>([=, queue = peer->queue](const Status& status) {
             if (!status.ok()) {
               waiter->End(status);
             } else {
               queue->Add(priority, send);
             }
           }));
}

void Task::WhenOpen(const std::shared_ptr<RemoteParameter>& parameter,
                    std::shared_ptr<Waiter> waiter) {
  bool open = false;
  {
    std::lock_guard<std::mutex> lock(parameter->mutex_);
    open = parameter->handle_ != nullptr;
    if (!open) {
      parameter->waiting_.push_back(waiter);
      if (std::exchange(parameter->opening_, true)) return;
    }
  }
  if (open) {
    waiter->End(Status::Ok());
  } else {
    Open(parameter);
  }
}

void Task::Open(const std::shared_ptr<RemoteParameter>& parameter) {
  auto peer = PeerOf(parameter->server);
  if (!peer.ok()) return Opened(parameter, peer.status());
  peer->queue->Add(kFirst, [this, parameter, connection = peer->connection](Deadline deadline) {
    auto asked = client_.Ask(connection, parameter->expected.name, deadline);
    if (asked.status().code() == StatusCode::kDeadlineExceeded) return false;
    if (!asked.ok()) {
      Opened(parameter, asked.status());
      return true;
    }
    {
      std::lock_guard<std::mutex> lock(parameter->mutex_);
      parameter->asked_ = *asked;
    }
    client_.WhenAnswered(**asked, std::make_shared<Waiter>([this, parameter](const Status& status) {
      executor_.Post([this, parameter, status] { Opened(parameter, status); });
    }));
    return true;
  });
}

void Task::Opened(const std::shared_ptr<RemoteParameter>& parameter, Status status) {
  std::vector<std::shared_ptr<Waiter>> waiting;
  {
    std::lock_guard<std::mutex> lock(parameter->mutex_);
    if (status.ok()) status = client_.Answered(*parameter->asked_);
    if (status.ok()) {
      status = CheckSame(ParameterClient::Info(*parameter->asked_).spec, parameter->expected);
    }
    if (status.ok()) {
      parameter->handle_ = std::move(parameter->asked_);
      parameter->opened_.store(parameter->handle_.get(), std::memory_order_release);
    }
    parameter->opening_ = false;
    waiting.swap(parameter->waiting_);
  }
  EndAll(waiting, status);
}

void Task::OnConnected(Connection& connection) {
  server_.OnConnected(connection);
  client_.OnConnected(connection);
}

Disposition Task::OnMessage(Connection& connection, const IncomingMessage& message) {
  switch (message.kind) {
    case MessageKind::kOpened:
    case MessageKind::kPublished:
    case MessageKind::kRefused:
      return client_.OnMessage(connection, message);
    default:
      return server_.OnMessage(connection, message);
  }
}

void Task::OnClosed(Connection& connection, const Status& status) {
  server_.OnClosed(connection, status);
  client_.OnClosed(connection, status);
}

}  // namespace rdmabatch
