#include "tf_rdmabatch/cc/bench/store_task.h"

#include <cstring>

namespace rdmabatch::bench {
namespace {

constexpr double kRoundSeconds = 60;
constexpr uint64_t kFirstVersion = 1;
constexpr uint64_t kFirstStep = 1;

std::string NameOf(uint32_t parameter) { return "parameter " + std::to_string(parameter); }

uint64_t BytesOf(const TaskOptions& options) { return options.bytes / options.parameters; }

Status Check(const TaskOptions& options) {
  if (options.parameters == 0 || options.servers == 0 || options.contributors == 0) {
    return {StatusCode::kInvalidArgument, "parameters, servers and contributors must be positive"};
  }
  if (options.bytes % (sizeof(float) * options.parameters) != 0) {
    return {StatusCode::kInvalidArgument,
            "bytes must be a multiple of 4 bytes for each of the parameters"};
  }
  return Status::Ok();
}

// A wait that was ended because the phase is over is no failure.
Status UnlessStopped(Status status, bool stopped) {
  return stopped && status.code() == StatusCode::kCancelled ? Status::Ok() : std::move(status);
}

}  // namespace

Result<std::unique_ptr<Task>> ServerTask::Create(const TaskOptions& options) {
  RDMABATCH_RETURN_IF_ERROR(Check(options));
  std::unique_ptr<ServerTask> task(new ServerTask(options));
  auto engine = Engine::Create(options.engine, &task->server_);
  if (!engine.ok()) return engine.status();
  task->engine_ = std::move(*engine);
  task->server_.Attach(task->engine_.get());
  RDMABATCH_RETURN_IF_ERROR(task->Serve());
  return std::unique_ptr<Task>(std::move(task));
}

ServerTask::~ServerTask() { engine_.reset(); }

Status ServerTask::Serve() {
  const std::vector<uint8_t> zeros(BytesOf(options_));
  for (uint32_t i = options_.index; i < options_.parameters; i += options_.servers) {
    ParameterSpec spec;
    spec.name = NameOf(i);
    spec.shape = {BytesOf(options_) / sizeof(float)};
    spec.contributors = options_.contributors;
    // Without pulls nothing holds a worker back at the end of a round: there are none, then.
    spec.consistency = options_.pulls ? Consistency::kBsp : Consistency::kAsp;
    RDMABATCH_RETURN_IF_ERROR(server_.Serve(spec));
    RDMABATCH_RETURN_IF_ERROR(
        server_.Publish(spec.name, kFirstVersion, zeros.data(), zeros.size()));
    names_.push_back(spec.name);
  }
  return Status::Ok();
}

Status ServerTask::Work(Phase) {
  if (!options_.pushes || !options_.pulls) return Status::Ok();
  for (uint64_t step = kFirstStep; !stopped(); ++step) {
    const Status status = Round(step);
    if (!status.ok()) return UnlessStopped(status, stopped());
  }
  return Status::Ok();
}

Status ServerTask::Round(uint64_t step) {
  const uint64_t bytes = BytesOf(options_);
  for (const std::string& name : names_) {
    auto published = server_.published(name);
    if (!published.ok()) return published.status();
    // The contributions to this step say that every worker has pulled what is overwritten.
    RDMABATCH_RETURN_IF_ERROR(
        server_.Collect(name, step, *published, bytes, Deadline::After(kRoundSeconds)));
    RDMABATCH_RETURN_IF_ERROR(server_.Publish(name, kFirstVersion + step, *published, bytes));
  }
  return Status::Ok();
}

Result<std::unique_ptr<Task>> WorkerTask::Create(const TaskOptions& options) {
  RDMABATCH_RETURN_IF_ERROR(Check(options));
  std::unique_ptr<WorkerTask> task(new WorkerTask(options));
  auto engine = Engine::Create(options.engine, &task->client_);
  if (!engine.ok()) return engine.status();
  task->engine_ = std::move(*engine);
  auto values = task->engine_->Allocate(options.bytes, Access::kLocal);
  if (!values.ok()) return values.status();
  task->values_ = std::move(*values);
  std::memset(task->values_->data(), 0, task->values_->size());
  return std::unique_ptr<Task>(std::move(task));
}

WorkerTask::~WorkerTask() { engine_.reset(); }

void WorkerTask::OnConnectedTo(const std::shared_ptr<Connection>& connection) {
  servers_.push_back(connection);
}

Status WorkerTask::Prepare(Deadline deadline) {
  if (servers_.size() != options_.servers) {
    return {StatusCode::kFailedPrecondition, "a worker connects to every server first"};
  }
  for (uint32_t i = 0; i < options_.parameters; ++i) {
    auto parameter = client_.Open(servers_[i % options_.servers], NameOf(i), deadline);
    if (!parameter.ok()) return parameter.status();
    parameters_.push_back(std::move(*parameter));
  }
  return Status::Ok();
}

Status WorkerTask::Work(Phase) {
  for (uint64_t step = kFirstStep; !stopped(); ++step) {
    const int64_t start = NowNs();
    const Status status = Round(step);
    if (!status.ok()) return UnlessStopped(status, stopped());
    if (counting()) latencies_.Add(static_cast<uint64_t>(NowNs() - start));
  }
  return Status::Ok();
}

Status WorkerTask::Round(uint64_t step) {
  if (!options_.pushes) return PullAll(kFirstVersion);
  RDMABATCH_RETURN_IF_ERROR(PushAll(step));
  return options_.pulls ? PullAll(kFirstVersion + step) : Status::Ok();
}

Status WorkerTask::PushAll(uint64_t step) {
  const uint64_t bytes = BytesOf(options_);
  const uint8_t* value = values_->data();
  for (const auto& parameter : parameters_) {
    RDMABATCH_RETURN_IF_ERROR(client_.Push(*parameter, step, options_.index, value, bytes,
                                           Deadline::After(kRoundSeconds)));
    value += bytes;
    CountOperation();
  }
  return Status::Ok();
}

Status WorkerTask::PullAll(uint64_t version) {
  const uint64_t bytes = BytesOf(options_);
  uint8_t* value = values_->data();
  for (const auto& parameter : parameters_) {
    RDMABATCH_RETURN_IF_ERROR(client_.Pull(*parameter, version, value, bytes,
                                           Deadline::After(kRoundSeconds), values_.get()));
    value += bytes;
    CountOperation();
  }
  return Status::Ok();
}

void WorkerTask::AddLatencies(Measurement* measurement) const {
  measurement->peers.push_back({0, latencies_.buckets()});
}

}  // namespace rdmabatch::bench
