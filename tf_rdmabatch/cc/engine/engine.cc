#include "tf_rdmabatch/cc/engine/engine.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "tf_rdmabatch/cc/base/log.h"
#include "tf_rdmabatch/cc/engine/control.h"
#include "tf_rdmabatch/cc/engine/handshake.h"
#include "tf_rdmabatch/cc/engine/progress.h"
#include "tf_rdmabatch/cc/transport/registry.h"

namespace rdmabatch {
namespace {

// How long the end of a connection waits for what its peer sent before.
constexpr double kDrainSeconds = 1;

// Counts the forks between this process and the one that loaded the library.
std::atomic<uint64_t> fork_generation{0};

Status Unencrypted() {
  return {StatusCode::kUnavailable,
          "it does not encrypt, as tls=True (TF_RDMABATCH_TLS=1) asks for; use tcp, or no TLS"};
}

uint64_t ForkGeneration() {
  static const int registered = pthread_atfork(
      nullptr, nullptr, [] { fork_generation.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
  return fork_generation.load(std::memory_order_relaxed);
}

}  // namespace

Engine::Engine(EngineOptions options, MessageSink* sink, Span<const TransportFactory> known)
    : options_(std::move(options)),
      sink_(sink),
      fork_generation_(ForkGeneration()),
      known_(known) {}

Result<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options, MessageSink* sink,
                                               Span<const TransportFactory> known) {
  RDMABATCH_RETURN_IF_ERROR(options.Validate());
  auto ports = options.Ports();
  if (!ports.ok()) return ports.status();
  auto rules = options.Rules(known);
  if (!rules.ok()) return rules.status();
  std::unique_ptr<Engine> engine(new Engine(options, sink, known));
  auto tls = options.Tls();
  if (!tls.ok()) return tls.status();
  if (*tls) RDMABATCH_RETURN_IF_ERROR(TlsStream::Probe());
  engine->ports_ = *ports;
  engine->tls_ = *tls;
  engine->rules_ = std::move(*rules);
  RDMABATCH_RETURN_IF_ERROR(engine->OpenTransports());
  engine->progress_ = std::make_unique<ProgressThread>(engine->transports_, options.spin_us);
  RDMABATCH_RETURN_IF_ERROR(engine->progress_->Start());
  engine->control_ = std::make_unique<ControlThread>(engine.get());
  RDMABATCH_RETURN_IF_ERROR(engine->control_->Start());
  return engine;
}

Engine::~Engine() {
  // The threads exist in the parent alone: a forked copy can only let go of them.
  if (fork_generation_ != ForkGeneration()) {
    (void)control_.release();   // NOLINT(bugprone-unused-return-value)
    (void)progress_.release();  // NOLINT(bugprone-unused-return-value)
    return;
  }
  Shutdown();
}

Status Engine::OpenTransports() {
  std::string why;
  for (const TransportFactory& factory : known_) {
    TransportState& state = states_.emplace_back();
    state.name = factory.name;
    if (!rules_.MayUse(factory.name)) {
      state.why_not = "transport=\"" + rules_.text() + "\" leaves it out";
      continue;
    }
    Status status = tls_ && !factory.confidential ? Unencrypted() : factory.probe();
    if (status.ok()) {
      auto transport = factory.create({ports_, tls_});
      if (transport.ok()) {
        transports_.push_back(std::move(*transport));
        continue;
      }
      status = transport.status();
    }
    state.why_not = status.message();
    why += (why.empty() ? "" : "; ") + state.name + ": " + status.message();
  }
  if (!transports_.empty()) return Status::Ok();
  return {StatusCode::kUnavailable, "no transport can run here: " + why};
}

Status Engine::Usable() const {
  if (fork_generation_ != ForkGeneration()) {
    return {StatusCode::kFailedPrecondition,
            "this engine belongs to the process that was forked: create one after fork()"};
  }
  if (stopping_.load(std::memory_order_acquire)) {
    return {StatusCode::kFailedPrecondition, "the engine was shut down"};
  }
  return Status::Ok();
}

Result<std::string> Engine::Listen(const std::string& address) {
  RDMABATCH_RETURN_IF_ERROR(Usable());
  return control_->Listen(address);
}

Result<std::shared_ptr<Connection>> Engine::Connect(const std::string& address, Deadline listening,
                                                    Deadline deadline) {
  RDMABATCH_RETURN_IF_ERROR(Usable());
  auto socket = ConnectTcp(address, listening, &stopping_);
  if (!socket.ok()) return socket.status();
  return Establish(std::move(*socket), /*active=*/true, deadline);
}

Result<std::shared_ptr<Connection>> Engine::Establish(BootstrapSocket socket, bool active,
                                                      Deadline deadline) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (connections_.size() >= options_.max_peers) {
      return Status(StatusCode::kResourceExhausted, "more peers than max_peers");
    }
  }
  Handshake handshake(this, std::move(socket), deadline);
  auto connection = active ? handshake.Connect() : handshake.Accept();
  if (!connection.ok()) return connection;
  (*connection)->SetEstablished();
  Log(LogLevel::kInfo,
      "connected to " + (*connection)->peer().ToString() + " over " + (*connection)->choice());
  // The engine may have stopped before it was in the list.
  if (stopping_.load(std::memory_order_acquire)) (*connection)->Leave(deadline);
  control_->Wake();
  return connection;
}

Result<std::shared_ptr<Region>> Engine::Allocate(uint64_t bytes, Access access) {
  RDMABATCH_RETURN_IF_ERROR(Usable());
  if (bytes == 0) return Status(StatusCode::kInvalidArgument, "a region has at least one byte");
  auto segment = Segment::Create(bytes, options_.huge_pages);
  if (!segment.ok()) return segment.status();
  std::shared_ptr<Region> region(new Region());
  region->segment_ = std::move(*segment);
  region->access_ = access;
  for (const auto& transport : transports_) {
    auto memory = transport->RegisterMemory(region->segment_, access);
    if (!memory.ok()) return memory.status();
    region->registrations_.emplace_back(transport, *memory);
  }
  return region;
}

std::vector<std::shared_ptr<Connection>> Engine::connections() const {
  auto usable = AllConnections();
  usable.erase(std::remove_if(usable.begin(), usable.end(),
                              [](const auto& connection) { return !connection->usable(); }),
               usable.end());
  return usable;
}

std::vector<std::shared_ptr<Connection>> Engine::AllConnections() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return connections_;
}

CounterValues Engine::counters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  CounterValues values = retired_;
  for (const auto& connection : connections_) values += connection->counters();
  values.wakeups += progress_->wakeups();
  values.refused += refused_.load(std::memory_order_acquire);
  values -= baseline_;
  return values;
}

void Engine::ResetCounters() {
  const CounterValues now = counters();
  std::lock_guard<std::mutex> lock(mutex_);
  baseline_ += now;
}

void Engine::Adopt(const std::shared_ptr<Connection>& connection) {
  std::lock_guard<std::mutex> lock(mutex_);
  // One that has ended meanwhile was retired in vain.
  if (!connection->closed()) connections_.push_back(connection);
}

void Engine::FailLater(std::shared_ptr<Connection> connection, const Status& status,
                       std::vector<uint64_t> announced) {
  EndWhenDrained(std::move(connection), status, std::move(announced),
                 Deadline::After(kDrainSeconds));
}

// What a peer sent before its good-bye may still be on its way: another path brings it.
void Engine::EndWhenDrained(std::shared_ptr<Connection> connection, const Status& status,
                            std::vector<uint64_t> announced, Deadline deadline) {
  progress_->AfterArrivals([this, connection = std::move(connection), status,
                            announced = std::move(announced), deadline] {
    if (!connection->Drained(announced) && !deadline.expired()) {
      return EndWhenDrained(connection, status, announced, deadline);
    }
    if (status.code() != StatusCode::kCancelled && !connection->closed()) {
      Log(status.code() == StatusCode::kDataLoss ? LogLevel::kWarning : LogLevel::kInfo,
          connection->Named(status).message());
    }
    connection->Fail(status);
  });
}

void Engine::Retire(Connection* connection) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = std::find_if(connections_.begin(), connections_.end(),
                           [&](const auto& c) { return c.get() == connection; });
    if (it != connections_.end()) {
      retired_ += connection->counters();
      connections_.erase(it);
    }
  }
  progress_->Remove(connection);
  control_->Wake();
}

void Engine::Shutdown() {
  if (fork_generation_ != ForkGeneration()) return;
  if (stopping_.exchange(true, std::memory_order_acq_rel)) return;
  if (progress_ == nullptr) return;
  const Deadline deadline = Deadline::After(Connection::kCloseSeconds);
  const auto connections = AllConnections();
  for (const auto& connection : connections) connection->BeginClose(deadline);
  for (const auto& connection : connections) connection->FinishClose(deadline);
  if (control_ != nullptr) control_->Stop();
  // Handshakes that ended meanwhile; nobody watches for their peers' answers any more.
  for (const auto& connection : AllConnections()) connection->Leave(deadline);
  progress_->Stop();
}

}  // namespace rdmabatch
