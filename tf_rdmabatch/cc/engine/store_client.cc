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

Result<std::shared_ptr<ParameterClient::Parameter>> ParameterClient::Ask(
    std::shared_ptr<Connection> server, const std::string& name, Deadline deadline) {
  return impl_->Ask(std::move(server), name, deadline);
}

void ParameterClient::WhenAnswered(Parameter& parameter, std::shared_ptr<Waiter> waiter) {
  impl_->When(parameter, 0, std::move(waiter));
}

Status ParameterClient::Answered(Parameter& parameter) { return impl_->Answered(parameter); }

bool ParameterClient::IsDirect(const Parameter& parameter) {
  return parameter.remote.direct() != nullptr;
}

const ParameterInfo& ParameterClient::Info(const Parameter& parameter) { return parameter.info; }

void ParameterClient::SetMessageBytes(uint64_t bytes) {
  impl_->message_bytes.store(bytes, std::memory_order_relaxed);
}

Status ParameterClient::Push(Parameter& parameter, uint64_t step, uint32_t contributor,
                             const void* source, uint64_t bytes, Deadline deadline) {
  if (bytes != parameter.info.bytes) return WrongSize(parameter, bytes);
  return impl_->Push(parameter, step, contributor, static_cast<const uint8_t*>(source), deadline);
}

Status ParameterClient::PushNothing(Parameter& parameter, uint64_t step, uint32_t contributor,
                                    Deadline deadline) {
  return impl_->PushNothing(parameter, step, contributor, deadline);
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

bool ParameterClient::HasVersion(const Parameter& parameter, uint64_t version) const {
  return parameter.info.blocks == 0 || parameter.Version() >= version;
}

const uint8_t* ParameterClient::Shared(const Parameter& p, uint64_t version) const {
  const bool bsp = p.info.spec.consistency == Consistency::kBsp;
  if (p.remote.direct() == nullptr || !bsp || p.info.bytes < kMinViewBytes) return nullptr;
  if (p.layout.versions == 1) {
    return p.Version() >= version ? p.remote.direct() + p.layout.DataOf(0) : nullptr;
  }
  for (uint32_t b = 0; b < p.info.blocks; ++b) {
    if (p.WordOf(version, b)->load(std::memory_order_acquire) != 2 * version) return nullptr;
  }
  return p.remote.direct() + p.layout.DataOf(version);
}

void ParameterClient::WhenVersion(Parameter& parameter, uint64_t version,
                                  std::shared_ptr<Waiter> waiter) {
  impl_->When(parameter, version, std::move(waiter));
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
  auto p = Ask(std::move(server), name, deadline);
  if (!p.ok()) return p.status();
  RDMABATCH_RETURN_IF_ERROR(AwaitReply(**p, deadline));
  RDMABATCH_RETURN_IF_ERROR(Answered(**p));
  return p;
}

Result<std::shared_ptr<ParameterClient::Parameter>> ParameterClient::Impl::Ask(
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
  return p;
}

Status ParameterClient::Impl::Answered(Parameter& p) {
  std::unique_lock<std::mutex> lock(p.mutex);
  if (!p.reply) {
    RDMABATCH_RETURN_IF_ERROR(EndingLocked(p));
    return {StatusCode::kFailedPrecondition, "parameter \"" + p.name + "\" is not open yet"};
  }
  OpenReply reply = std::move(*p.reply);
  p.reply.reset();
  lock.unlock();

  const std::string peer = p.connection->peer().ToString();
  auto remote = p.connection->Import(reply.region);
  if (!remote.ok()) return remote.status();
  if (remote->bytes < reply.region_bytes) {
    return {StatusCode::kDataLoss,
            peer + " described parameter \"" + p.name + "\" beyond the end of its region"};
  }
  p.info = std::move(reply.info);
  p.info.spec.name = p.name;
  p.id = reply.id;
  p.remote = std::move(*remote);
  p.layout = reply.layout;
  p.block_versions = std::vector<std::atomic<uint64_t>>(p.info.blocks);
  p.whole.store(p.info.version, std::memory_order_release);
  lock.lock();
  for (const PublishedNotice& notice : p.early) {
    if (!p.Apply(notice)) {
      return {StatusCode::kDataLoss,
              peer + " published blocks that parameter \"" + p.name + "\" does not have"};
    }
  }
  p.early = {};
  p.opened = true;
  return Status::Ok();
}

Status ParameterClient::Impl::AwaitReply(Parameter& p, Deadline deadline) {
  while (true) {
    const uint64_t key = p.changed.Prepare();
    {
      std::lock_guard<std::mutex> lock(p.mutex);
      Status ending = p.reply ? Status::Ok() : EndingLocked(p);
      if (p.reply || !ending.ok()) {
        p.changed.Cancel();
        return ending;
      }
    }
    if (!p.changed.Wait(key, deadline)) {
      return {StatusCode::kDeadlineExceeded,
              p.connection->peer().ToString() + " does not serve parameter \"" + p.name + "\" yet"};
    }
  }
}

// Version 0 is the reply to Ask.
void ParameterClient::Impl::When(Parameter& p, uint64_t version, std::shared_ptr<Waiter> waiter) {
  Status status;
  {
    std::lock_guard<std::mutex> lock(p.mutex);
    status = EndingLocked(p);
    const bool reached = version == 0 ? p.reply || p.opened
                                      : p.opened && (p.info.blocks == 0 || p.Version() >= version);
    if (status.ok() && !reached) return p.waiting.Add(version, std::move(waiter));
  }
  waiter->End(status);
}

// Why a call on the parameter must not go on, if so.
Status ParameterClient::Impl::Ending(Parameter& p) const {
  if (!cancelled_.load(std::memory_order_acquire) && !p.connection->closed() &&
      !p.refused.load(std::memory_order_acquire)) {
    return Status::Ok();
  }
  std::lock_guard<std::mutex> lock(p.mutex);
  return EndingLocked(p);
}

Status ParameterClient::Impl::EndingLocked(Parameter& p) const {
  if (cancelled_.load(std::memory_order_acquire)) {
    return {StatusCode::kCancelled, "the parameter client was cancelled"};
  }
  if (p.connection->closed()) return p.connection->status();
  if (!p.refused.load(std::memory_order_acquire)) return Status::Ok();
  return p.TakeRefusal();
}

Status ParameterClient::Parameter::TakeRefusal() {
  refused.store(false, std::memory_order_relaxed);
  return std::exchange(refusal, Status());
}

void ParameterClient::Impl::EndWaiters(Parameter& p, const Status& status) {
  WaitList::Waiters waiters;
  {
    std::lock_guard<std::mutex> lock(p.mutex);
    waiters = p.waiting.Take();
  }
  p.changed.Notify();
  EndAll(waiters, status);
}

void ParameterClient::Impl::Cancel() {
  cancelled_.store(true, std::memory_order_seq_cst);
  for (const auto& p : Held()) {
    EndWaiters(*p, {StatusCode::kCancelled, "the parameter client was cancelled"});
  }
}

std::vector<std::shared_ptr<ParameterClient::Parameter>> ParameterClient::Impl::Held() {
  std::vector<std::shared_ptr<Parameter>> held;
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [cookie, weak] : parameters_) {
    if (auto p = weak.lock()) held.push_back(std::move(p));
  }
  return held;
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
  WaitList::Waiters waiters;
  {
    std::lock_guard<std::mutex> lock(p->mutex);
    if (p->reply || p->opened) return Disposition::kViolate;
    p->reply = std::move(*reply);
    waiters = p->waiting.Take(0);
  }
  p->changed.Notify();
  EndAll(waiters, Status::Ok());
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
  WaitList::Waiters waiters;
  {
    std::lock_guard<std::mutex> lock(p->mutex);
    if (!p->opened) {
      if (p->early.size() == kMaxEarlyNotices) return Disposition::kViolate;
      p->early.push_back(*notice);
      return Disposition::kDone;
    }
    if (!p->Apply(*notice)) return Disposition::kViolate;
    if (!p->waiting.empty()) waiters = p->waiting.Take(p->Version());
  }
  p->changed.Notify();
  EndAll(waiters, Status::Ok());
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
  WaitList::Waiters waiters;
  {
    std::lock_guard<std::mutex> lock(p->mutex);
    waiters = p->waiting.Take();
    if (waiters.empty()) {
      if (p->refusal.ok()) p->refusal = refusal->status;
      p->refused.store(true, std::memory_order_release);
    }
  }
  p->changed.Notify();
  EndAll(waiters, refusal->status);
  return Disposition::kDone;
}

void ParameterClient::Impl::OnClosed(Connection& connection) {
  for (const auto& p : Held()) {
    if (p->connection.get() == &connection) EndWaiters(*p, connection.status());
  }
}

}  // namespace rdmabatch
