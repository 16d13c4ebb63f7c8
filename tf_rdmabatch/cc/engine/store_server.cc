#include "tf_rdmabatch/cc/engine/store_server.h"

#include <utility>

#include "tf_rdmabatch/cc/engine/wire.h"

namespace rdmabatch {
namespace {

// Sums that were given away and came back: one is being filled, one may be in use.
constexpr size_t kSpareSums = 1;

Status Quoted(StatusCode code, const std::string& name, const std::string& what) {
  return {code, "parameter \"" + name + "\" " + what};
}

Status NotServed(const std::string& name) {
  return Quoted(StatusCode::kNotFound, name, "is not served here");
}

Status WrongSize(const ServedParameter& p, uint64_t bytes) {
  return Quoted(StatusCode::kInvalidArgument, p.info.spec.name,
                "has " + std::to_string(p.info.bytes) + " bytes, not " + std::to_string(bytes));
}

Status Contended(const std::string& name) {
  return Quoted(StatusCode::kFailedPrecondition, name, "is being collected by another thread");
}

}  // namespace

ParameterServer::ParameterServer(MessageSink* next) : impl_(std::make_unique<Impl>(next)) {}
ParameterServer::~ParameterServer() = default;

void ParameterServer::Attach(Engine* engine) {
  impl_->engine.store(engine, std::memory_order_release);
}

Status ParameterServer::Serve(const ParameterSpec& spec) { return impl_->Serve(spec); }

Status ParameterServer::Collect(const std::string& name, uint64_t step, void* destination,
                                uint64_t bytes, Deadline deadline, uint64_t* contributions) {
  ServedParameter* p = impl_->Find(name);
  if (p == nullptr) return NotServed(name);
  if (destination != nullptr && bytes != p->info.bytes) return WrongSize(*p, bytes);
  std::unique_lock<std::mutex> lock(p->collect, std::try_to_lock);
  if (!lock.owns_lock()) return Contended(name);
  auto* to = static_cast<uint8_t*>(destination);
  if (!p->bsp()) {
    const uint64_t pushes = impl_->CollectNow(*p, to);
    if (contributions != nullptr) *contributions = pushes;
    return Status::Ok();
  }
  RDMABATCH_RETURN_IF_ERROR(impl_->Expect(*p, step));
  RDMABATCH_RETURN_IF_ERROR(impl_->Collect(*p, step, to, deadline));
  if (contributions != nullptr) *contributions = p->info.spec.contributors;
  return Status::Ok();
}

Result<std::shared_ptr<uint8_t>> ParameterServer::TakeSum(const std::string& name, uint64_t step,
                                                          Deadline deadline) {
  ServedParameter* p = impl_->Find(name);
  if (p == nullptr) return NotServed(name);
  std::unique_lock<std::mutex> lock(p->collect, std::try_to_lock);
  if (!lock.owns_lock()) return Contended(name);
  auto next = p->sums->Take();
  if (next == nullptr) {
    return Quoted(StatusCode::kResourceExhausted, name, "does not fit in memory once more");
  }
  if (p->bsp()) {
    RDMABATCH_RETURN_IF_ERROR(impl_->Expect(*p, step));
    RDMABATCH_RETURN_IF_ERROR(impl_->TakeSum(*p, step, &next, deadline));
  } else {
    (void)impl_->CollectNow(*p, next->data());
  }
  return std::shared_ptr<uint8_t>(next, next->data());
}

bool ParameterServer::IsComplete(const std::string& name, uint64_t step) {
  ServedParameter* p = impl_->Find(name);
  if (p == nullptr || !p->bsp()) return true;
  std::unique_lock<std::mutex> lock(p->collect, std::try_to_lock);
  return !lock.owns_lock() || !impl_->Expect(*p, step).ok() || Impl::IsComplete(*p);
}

void ParameterServer::WhenComplete(const std::string& name, uint64_t step,
                                   std::shared_ptr<Waiter> waiter) {
  ServedParameter* p = impl_->Find(name);
  if (p == nullptr) {
    waiter->End(NotServed(name));
    return;
  }
  if (!p->bsp()) {
    waiter->End(Status::Ok());
    return;
  }
  Status status = Contended(name);
  {
    std::unique_lock<std::mutex> lock(p->collect, std::try_to_lock);
    if (lock.owns_lock()) status = impl_->Expect(*p, step);
  }
  if (!status.ok()) {
    waiter->End(status);
  } else {
    impl_->WhenComplete(*p, std::move(waiter));
  }
}

Status ParameterServer::Publish(const std::string& name, uint64_t version, const void* source,
                                uint64_t bytes) {
  ServedParameter* p = impl_->Find(name);
  if (p == nullptr) return NotServed(name);
  if (bytes != p->info.bytes) return WrongSize(*p, bytes);
  const bool in_place = p->info.spec.versions == 1 && source == p->place.data(0);
  const PublishedPiece whole{0, bytes, in_place ? nullptr : source};
  return Publish(name, version, {&whole, 1});
}

Status ParameterServer::Publish(const std::string& name, uint64_t version,
                                Span<const PublishedPiece> pieces) {
  ServedParameter* p = impl_->Find(name);
  if (p == nullptr) return NotServed(name);
  for (const PublishedPiece& piece : pieces) {
    const uint64_t size = p->info.bytes;
    if (piece.bytes > size || piece.offset > size - piece.bytes) return WrongSize(*p, piece.bytes);
  }
  std::lock_guard<std::mutex> lock(p->publish);
  const uint64_t last = p->version.load(std::memory_order_relaxed);
  if (version <= last || version >> 63 != 0) {
    return Quoted(StatusCode::kInvalidArgument, name,
                  "was published under version " + std::to_string(last) + "; " +
                      std::to_string(version) + " is no later one");
  }
  return impl_->Publish(*p, version, pieces);
}

Result<uint8_t*> ParameterServer::published(const std::string& name) {
  ServedParameter* p = impl_->Find(name);
  if (p == nullptr) return NotServed(name);
  if (p->info.spec.versions != 1) {
    return Quoted(StatusCode::kFailedPrecondition, name,
                  "keeps two versions: it is not updated in place");
  }
  return p->place.data(0);
}

Result<std::shared_ptr<SharedView>> ParameterServer::PublishedView(const std::string& name,
                                                                   bool renew) {
  auto memory = published(name);
  if (!memory.ok()) return memory.status();
  ServedParameter* p = impl_->Find(name);
  if (p->info.bytes < kMinViewBytes) return std::shared_ptr<SharedView>();
  std::lock_guard<std::mutex> lock(p->publish);
  if (renew && p->view != nullptr) {
    RDMABATCH_RETURN_IF_ERROR(p->view->Detach());
    p->view = nullptr;
  }
  if (p->view == nullptr) {
    auto view = SharedView::Of(*memory, p->info.bytes);
    if (!view.ok()) return view;
    p->view = std::move(*view);
  }
  return p->view;
}

Result<ParameterInfo> ParameterServer::Info(const std::string& name) const {
  ServedParameter* p = impl_->Find(name);
  if (p == nullptr) return NotServed(name);
  ParameterInfo info = p->info;
  info.version = p->version.load(std::memory_order_acquire);
  info.step = p->step.load(std::memory_order_acquire);
  return info;
}

std::vector<std::string> ParameterServer::names() const { return impl_->names(); }
void ParameterServer::Cancel() { impl_->Cancel(); }
CounterValues ParameterServer::counters() const { return impl_->counters(); }

void ParameterServer::OnConnected(Connection& connection) {
  impl_->OnConnected(connection);
  if (impl_->next != nullptr) impl_->next->OnConnected(connection);
}

Disposition ParameterServer::OnMessage(Connection& connection, const IncomingMessage& message) {
  switch (message.kind) {
    case MessageKind::kPush:
      return impl_->OnPush(connection, message);
    case MessageKind::kOpen:
      return impl_->OnOpen(connection, message);
    case MessageKind::kPulled:
      return Disposition::kDone;
    default:
      if (impl_->next != nullptr) return impl_->next->OnMessage(connection, message);
      return message.kind == MessageKind::kUser ? Disposition::kDone : Disposition::kViolate;
  }
}

void ParameterServer::OnClosed(Connection& connection, const Status& status) {
  impl_->OnClosed(connection, status);
  if (impl_->next != nullptr) impl_->next->OnClosed(connection, status);
}

ParameterServer::Impl::Impl(MessageSink* next) : next(next), control_([this] { Run(); }) {}

ParameterServer::Impl::~Impl() {
  {
    std::lock_guard<std::mutex> lock(tasks_mutex_);
    stop_ = true;
  }
  tasks_ready_.notify_one();
  control_.join();
}

Status ParameterServer::Impl::Serve(const ParameterSpec& spec) {
  Engine* const attached = engine.load(std::memory_order_acquire);
  if (attached == nullptr) {
    return {StatusCode::kFailedPrecondition, "the parameter server has no engine yet: attach one"};
  }
  if (spec.name.empty() || spec.name.size() > kMaxParameterName) {
    return {StatusCode::kInvalidArgument, "a parameter's name has 1 to 256 bytes"};
  }
  auto p = std::make_unique<ServedParameter>();
  p->info.spec = spec;
  uint32_t& block_bytes = p->info.spec.block_bytes;
  if (block_bytes == 0) {
    block_bytes = attached->options().slot_bytes - sizeof(SlotHeader) - sizeof(MessageHeader) -
                  sizeof(PushHeader);
  }
  block_bytes -= block_bytes % kBlockAlignment;
  Status measured = Measure(&p->info);
  if (!measured.ok()) return Quoted(measured.code(), spec.name, ": " + measured.message());
  if (uint64_t{block_bytes} + sizeof(PushHeader) > attached->options().max_message_bytes) {
    return Quoted(StatusCode::kInvalidArgument, spec.name,
                  "has blocks that are larger than max_message_bytes");
  }

  const uint32_t blocks = p->info.blocks;
  p->complete_at.store(blocks, std::memory_order_relaxed);
  p->sums = Pool<HeapBuffer>::Create(kSpareSums,
                                     [bytes = p->info.bytes] { return HeapBuffer::Create(bytes); });
  p->accumulator = p->sums->Take();
  if (p->accumulator == nullptr) {
    return Quoted(StatusCode::kResourceExhausted, spec.name, "does not fit in memory");
  }
  p->blocks = std::vector<ServedBlock>(blocks);
  if (p->bsp()) {
    p->bit_words = (spec.contributors + 63) / 64;
    p->bits = std::vector<std::atomic<uint64_t>>(uint64_t{blocks} * p->bit_words);
    p->contributors = std::vector<Contributor>(spec.contributors);
  }

  std::lock_guard<std::mutex> memory_lock(memory_mutex_);
  if (Find(spec.name) != nullptr) {
    return Quoted(StatusCode::kAlreadyExists, spec.name, "is served already");
  }
  auto place = memory_.Allocate(attached, p->info);
  if (!place.ok()) return place.status();
  p->place = std::move(*place);

  std::vector<WaitingOpen> waiting;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (parameters_.size() == kMaxIds) {
      return {StatusCode::kResourceExhausted, "the server has no room for more parameters"};
    }
    p->id = static_cast<uint32_t>(parameters_.size());
    table_.Put(p->id, p.get());
    by_name_.emplace(spec.name, p.get());
    parameters_.push_back(std::move(p));
    auto it = waiting_.find(spec.name);
    if (it != waiting_.end()) {
      waiting = std::move(it->second);
      waiting_.erase(it);
    }
  }
  for (const WaitingOpen& open : waiting) {
    Enqueue([this, open, name = spec.name] { Answer(open.peer, open.cookie, name); });
  }
  return Status::Ok();
}

ServedParameter* ParameterServer::Impl::Find(const std::string& name) const {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

std::vector<std::string> ParameterServer::Impl::names() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> names;
  for (const auto& p : parameters_) names.push_back(p->info.spec.name);
  return names;
}

void ParameterServer::Impl::Cancel() {
  cancelled_.store(true, std::memory_order_seq_cst);
  std::vector<ServedParameter*> served;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& p : parameters_) served.push_back(p.get());
  }
  for (ServedParameter* p : served) {
    p->progress.Notify();
    EndWaiters(*p, {StatusCode::kCancelled, "the parameter server was cancelled"});
  }
}

CounterValues ParameterServer::Impl::counters() const {
  CounterValues values = progress_counters_.values();
  values += application_counters_.values();
  return values;
}

}  // namespace rdmabatch
