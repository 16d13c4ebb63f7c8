#include "tf_rdmabatch/cc/engine/store_client.h"

#include <algorithm>
#include <utility>

#include "tf_rdmabatch/cc/base/log.h"

namespace rdmabatch {
namespace {

constexpr size_t kMaxEarlyNotices = 1 << 16;

Status WrongSize(const ParameterClient::Parameter& p, uint64_t bytes) {
  return {StatusCode::kInvalidArgument, "parameter \"" + p.name + "\" has " +
                                            std::to_string(p.info.bytes) + " bytes, not " +
                                            std::to_string(bytes)};
}

}  // namespace

ParameterClient::ParameterClient(MessageSink* next) : impl_(std::make_unique<Impl>(next)) {}
ParameterClient::~ParameterClient() = default;

void ParameterClient::Attach(Engine* engine) {
  impl_->engine.store(engine, std::memory_order_release);
}

Result<std::shared_ptr<ParameterClient::Parameter>> ParameterClient::Open(
    std::shared_ptr<Connection> server, const std::string& name, Deadline deadline) {
  return impl_->Open(std::move(server), name, deadline);
}

const ParameterInfo& ParameterClient::Info(const Parameter& parameter) { return parameter.info; }

Status ParameterClient::Push(Parameter& parameter, uint64_t step, uint32_t contributor,
                             const void* source, uint64_t bytes, Deadline deadline) {
  if (bytes != parameter.info.bytes) return WrongSize(parameter, bytes);
  return impl_->Push(parameter, step, contributor, static_cast<const uint8_t*>(source), deadline);
}

Status ParameterClient::Pull(Parameter& parameter, uint64_t version, void* destination,
                             uint64_t bytes, Deadline deadline, const Region* region,
                             uint64_t* got) {
  if (bytes != parameter.info.bytes) return WrongSize(parameter, bytes);
  return impl_->Pull(parameter, version, static_cast<uint8_t*>(destination), deadline, region, got);
}

Status ParameterClient::WaitVersion(Parameter& parameter, uint64_t version, Deadline deadline) {
  for (uint32_t b = 0; b < parameter.info.blocks; ++b) {
    RDMABATCH_RETURN_IF_ERROR(impl_->WaitBlock(parameter, b, version, deadline));
  }
  return Status::Ok();
}

void ParameterClient::Cancel() { impl_->Cancel(); }
CounterValues ParameterClient::counters() const { return impl_->counters(); }

Disposition ParameterClient::OnMessage(Connection& connection, const IncomingMessage& message) {
  switch (message.kind) {
    case MessageKind::kOpened:
      return impl_->OnOpened(connection, message);
    case MessageKind::kPublished:
      return impl_->OnPublished(connection, message);
    case MessageKind::kRefused:
      return impl_->OnRefused(connection, message);
    default:
      if (impl_->next != nullptr) return impl_->next->OnMessage(connection, message);
      return message.kind == MessageKind::kUser ? Disposition::kDone : Disposition::kViolate;
  }
}

void ParameterClient::OnClosed(Connection& connection, const Status& status) {
  impl_->OnClosed(connection);
  if (impl_->next != nullptr) impl_->next->OnClosed(connection, status);
}

Result<std::shared_ptr<ParameterClient::Parameter>> ParameterClient::Impl::Open(
    std::shared_ptr<Connection> server, const std::string& name, Deadline deadline) {
  if (server == nullptr || name.empty() || name.size() > kMaxParameterName) {
    return Status(StatusCode::kInvalidArgument,
                  "a parameter is opened on a connection, by a name of 1 to 256 bytes");
  }
  std::shared_ptr<Parameter> p;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = parameters_.begin(); it != parameters_.end();) {
      it = it->second.expired() ? parameters_.erase(it) : std::next(it);
    }
    while (next_cookie_ == kNoCookie || parameters_.count(next_cookie_) != 0) ++next_cookie_;
    p = std::make_shared<Parameter>(server, next_cookie_++, name);
    parameters_.emplace(p->cookie, p);
  }
  const std::string request = Encode(OpenRequest{p->cookie, name});
  RDMABATCH_RETURN_IF_ERROR(
      server->Send({MessageKind::kOpen, 0, {}, rdmabatch::BytesOf(request)}, deadline));
  OpenReply reply;
  RDMABATCH_RETURN_IF_ERROR(AwaitReply(*p, &reply, deadline));

  auto remote = server->Import(reply.region);
  if (!remote.ok()) return remote.status();
  if (remote->bytes < reply.region_bytes) {
    return Status(StatusCode::kDataLoss, server->peer().ToString() + " described parameter \"" +
                                             name + "\" beyond the end of its region");
  }
  p->info = std::move(reply.info);
  p->info.spec.name = name;
  p->id = reply.id;
  p->remote = std::move(*remote);
  p->versions_offset = reply.versions_offset;
  p->data_offset = reply.data_offset;
  p->block_versions = std::vector<std::atomic<uint64_t>>(p->info.blocks);
  p->whole.store(p->info.version, std::memory_order_release);
  std::lock_guard<std::mutex> lock(p->mutex);
  for (const PublishedNotice& notice : p->early) {
    if (!p->Apply(notice)) {
      return Status(StatusCode::kDataLoss, server->peer().ToString() +
                                               " published blocks that parameter \"" + name +
                                               "\" does not have");
    }
  }
  p->early = {};
  p->opened = true;
  return p;
}

Status ParameterClient::Impl::AwaitReply(Parameter& p, OpenReply* reply, Deadline deadline) {
  while (true) {
    const uint64_t key = p.changed.Prepare();
    Status ending;
    {
      std::lock_guard<std::mutex> lock(p.mutex);
      if (p.reply) {
        *reply = std::move(*p.reply);
        p.reply.reset();
        p.changed.Cancel();
        return Status::Ok();
      }
    }
    ending = Ending(p);
    if (!ending.ok()) {
      p.changed.Cancel();
      return ending;
    }
    if (!p.changed.Wait(key, deadline)) {
      return {StatusCode::kDeadlineExceeded,
              p.connection->peer().ToString() + " does not serve parameter \"" + p.name + "\" yet"};
    }
  }
}

// Why a call on the parameter must not go on, if so.
Status ParameterClient::Impl::Ending(Parameter& p) const {
  if (cancelled_.load(std::memory_order_acquire)) {
    return {StatusCode::kCancelled, "the parameter client was cancelled"};
  }
  if (p.connection->closed()) return p.connection->status();
  if (!p.refused.load(std::memory_order_acquire)) return Status::Ok();
  return p.TakeRefusal();
}

Status ParameterClient::Parameter::TakeRefusal() {
  std::lock_guard<std::mutex> lock(mutex);
  refused.store(false, std::memory_order_relaxed);
  return std::exchange(refusal, Status());
}

void ParameterClient::Impl::Cancel() {
  cancelled_.store(true, std::memory_order_seq_cst);
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [cookie, weak] : parameters_) {
    if (auto p = weak.lock()) p->changed.Notify();
  }
}

std::shared_ptr<ParameterClient::Parameter> ParameterClient::Impl::FindOf(
    const Connection& connection, uint32_t cookie, bool* foreign) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = parameters_.find(cookie);
  auto p = it == parameters_.end() ? nullptr : it->second.lock();
  if (p != nullptr && p->connection.get() != &connection) {
    *foreign = true;
    return nullptr;
  }
  return p;
}

// What comes for a parameter that nobody holds any more is no fault of the server.
Disposition ParameterClient::Impl::OnOpened(Connection& connection,
                                            const IncomingMessage& message) {
  auto reply = DecodeOpened(message.payload);
  if (!reply) return Disposition::kViolate;
  bool foreign = false;
  auto p = FindOf(connection, reply->cookie, &foreign);
  if (foreign) return Disposition::kViolate;
  if (p == nullptr) return Disposition::kDone;
  {
    std::lock_guard<std::mutex> lock(p->mutex);
    if (p->reply || p->opened) return Disposition::kViolate;
    p->reply = std::move(*reply);
  }
  p->changed.Notify();
  return Disposition::kDone;
}

Disposition ParameterClient::Impl::OnPublished(Connection& connection,
                                               const IncomingMessage& message) {
  const auto notice = DecodePublished(message.payload);
  if (!notice) return Disposition::kViolate;
  bool foreign = false;
  auto p = FindOf(connection, notice->cookie, &foreign);
  if (foreign) return Disposition::kViolate;
  if (p == nullptr) return Disposition::kDone;
  {
    std::lock_guard<std::mutex> lock(p->mutex);
    if (!p->opened) {
      if (p->early.size() == kMaxEarlyNotices) return Disposition::kViolate;
      p->early.push_back(*notice);
      return Disposition::kDone;
    }
    if (!p->Apply(*notice)) return Disposition::kViolate;
  }
  p->changed.Notify();
  return Disposition::kDone;
}

bool ParameterClient::Parameter::Apply(const PublishedNotice& notice) {
  if (notice.first > info.blocks || notice.count > info.blocks - notice.first) return false;
  const auto raise = [&](std::atomic<uint64_t>& version) {
    if (version.load(std::memory_order_relaxed) < notice.version) {
      version.store(notice.version, std::memory_order_release);
    }
  };
  if (notice.count == info.blocks) {
    raise(whole);
  } else {
    for (uint32_t i = 0; i < notice.count; ++i) raise(block_versions[notice.first + i]);
  }
  return true;
}

Disposition ParameterClient::Impl::OnRefused(Connection& connection,
                                             const IncomingMessage& message) {
  auto refusal = DecodeRefused(message.payload);
  if (!refusal) return Disposition::kViolate;
  bool foreign = false;
  auto p = FindOf(connection, refusal->cookie, &foreign);
  if (foreign) return Disposition::kViolate;
  if (p == nullptr) {
    Log(LogLevel::kWarning, connection.peer().ToString() + ": " + refusal->status.message());
    return Disposition::kDone;
  }
  {
    std::lock_guard<std::mutex> lock(p->mutex);
    if (p->refusal.ok()) p->refusal = refusal->status;
    p->refused.store(true, std::memory_order_release);
  }
  p->changed.Notify();
  return Disposition::kDone;
}

void ParameterClient::Impl::OnClosed(Connection& connection) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [cookie, weak] : parameters_) {
    auto p = weak.lock();
    if (p != nullptr && p->connection.get() == &connection) p->changed.Notify();
  }
}

}  // namespace rdmabatch
