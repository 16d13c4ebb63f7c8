// The control thread of a parameter server: opens, refusals, ends of connections, and messages for
// which a worker had no free slot. Nobody waits for a worker here.
#include <algorithm>
#include <chrono>
#include <utility>

#include "tf_rdmabatch/cc/base/log.h"
#include "tf_rdmabatch/cc/engine/store_server.h"

namespace rdmabatch {
namespace {

// What a peer may leave unanswered or unread.
constexpr uint32_t kMaxOpenRequests = 1 << 16;
constexpr uint32_t kMaxRefusals = 64;
constexpr size_t kMaxHandles = 64;  // of one parameter
// Messages that a slot does not hold wait for more than one, but not for long.
constexpr double kLargeReplySeconds = 1;
constexpr auto kFirstRetry = std::chrono::milliseconds(1);
constexpr auto kLastRetry = std::chrono::milliseconds(50);

}  // namespace

void ParameterServer::Impl::Run() {
  auto retry = kFirstRetry;
  std::unique_lock<std::mutex> lock(tasks_mutex_);
  while (!stop_) {
    const auto ready = [this] { return stop_ || !tasks_.empty(); };
    if (backlog_.empty()) {
      tasks_ready_.wait(lock, ready);
      retry = kFirstRetry;
    } else {
      tasks_ready_.wait_for(lock, retry, ready);
      retry = std::min(2 * retry, kLastRetry);
    }
    std::vector<std::function<void()>> tasks;
    tasks.swap(tasks_);
    lock.unlock();
    for (const auto& task : tasks) task();
    backlog_.erase(std::remove_if(backlog_.begin(), backlog_.end(),
                                  [this](const Outgoing& message) { return TrySend(message); }),
                   backlog_.end());
    tasks.clear();
    lock.lock();
  }
}

void ParameterServer::Impl::Enqueue(std::function<void()> task) {
  {
    std::lock_guard<std::mutex> lock(tasks_mutex_);
    tasks_.push_back(std::move(task));
  }
  tasks_ready_.notify_one();
}

void ParameterServer::Impl::OnConnected(Connection& connection) {
  auto peer = std::make_shared<StorePeer>(connection);
  connection.set_context(peer.get());
  std::lock_guard<std::mutex> lock(mutex_);
  // Handlers may run until a connection is gone, so only then may its peer go.
  peers_.erase(std::remove_if(peers_.begin(), peers_.end(),
                              [](const auto& old) { return old->connection.expired(); }),
               peers_.end());
  peers_.push_back(std::move(peer));
}

Disposition ParameterServer::Impl::OnOpen(Connection& connection, const IncomingMessage& message) {
  auto request = DecodeOpen(message.payload);
  auto* const context = static_cast<StorePeer*>(connection.context());
  if (!request || context == nullptr) return Disposition::kViolate;
  auto peer = context->shared_from_this();
  if (peer->open_requests.fetch_add(1, std::memory_order_relaxed) >= kMaxOpenRequests) {
    return Disposition::kViolate;
  }
  Enqueue([this, peer = std::move(peer), request = std::move(*request)] {
    Answer(peer, request.cookie, request.name);
  });
  return Disposition::kDone;
}

void ParameterServer::Impl::Answer(const std::shared_ptr<StorePeer>& peer, uint32_t cookie,
                                   const std::string& name) {
  auto connection = peer->connection.lock();
  if (connection == nullptr || peer->closed.load(std::memory_order_acquire)) return;
  ServedParameter* p = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = by_name_.find(name);
    if (it == by_name_.end()) {
      waiting_[name].push_back({peer, cookie});
      return;
    }
    p = it->second;
  }
  peer->open_requests.fetch_sub(1, std::memory_order_relaxed);
  auto region = ExportTo(*peer, *connection, *p->place.region);
  if (!region.ok()) return SendRefusal(peer, cookie, region.status());

  OpenReply reply;
  reply.cookie = cookie;
  reply.id = p->id;
  reply.info = p->info;
  reply.region = std::move(*region);
  reply.region_bytes = p->place.region->size();
  reply.layout = p->place.layout;
  {
    // Between two Publish calls: what the reply does not say, a notice will.
    std::lock_guard<std::mutex> publish(p->publish);
    std::lock_guard<std::mutex> members(p->members);
    auto of_peer = [&](const Opener& opener) { return opener.peer == peer; };
    auto& openers = p->openers;
    if (static_cast<size_t>(std::count_if(openers.begin(), openers.end(), of_peer)) >=
        kMaxHandles) {
      openers.erase(std::find_if(openers.begin(), openers.end(), of_peer));
    }
    openers.push_back({peer, cookie, 0});
    AdmitReplacement(*p);
    reply.info.version = p->version.load(std::memory_order_relaxed);
    reply.info.step = p->step.load(std::memory_order_relaxed);
  }
  peer->opened.Add(p->id);
  SendSoon({peer, MessageKind::kOpened, Encode(reply), nullptr, cookie});
}

// Whoever opens a parameter may come in the place of one that ended: Collect waits for it again.
// Under the members' mutex.
void ParameterServer::Impl::AdmitReplacement(ServedParameter& p) {
  if (!p.lost.empty()) {
    p.lost.erase(p.lost.begin());
    return;
  }
  for (Contributor& contributor : p.contributors) {
    if (contributor.ended.ok()) continue;
    contributor.ended = Status::Ok();
    contributor.connection.store(0, std::memory_order_relaxed);
    return;
  }
}

Result<std::string> ParameterServer::Impl::ExportTo(StorePeer& peer, Connection& connection,
                                                    const Region& region) {
  auto it = peer.exports.find(&region);
  if (it != peer.exports.end()) return it->second;
  auto descriptor = connection.Export(region);
  if (descriptor.ok()) peer.exports.emplace(&region, *descriptor);
  return descriptor;
}

// Counts, says so once to the log, and tells the worker; progress thread.
ParameterServer::Impl::Taken ParameterServer::Impl::Refuse(Connection& connection, StorePeer* peer,
                                                           const PushHeader& header,
                                                           StatusCode code,
                                                           const std::string& why) {
  progress_counters_.refused.Add(1);
  if (peer == nullptr) return Taken::kRefused;
  const ServedParameter* p = table_.Find(header.parameter);
  const bool opened = p != nullptr && peer->opened.Has(header.parameter);
  std::string text = "a push to " +
                     (opened ? "parameter \"" + p->info.spec.name + "\""
                             : "parameter number " + std::to_string(header.parameter)) +
                     " was refused: " + why;
  if (!std::exchange(peer->logged, true)) {
    Log(LogLevel::kWarning, connection.peer().ToString() + ": " + text +
                                "; more from this peer are counted, not logged");
  }
  if (peer->refusals.load(std::memory_order_relaxed) >= kMaxRefusals) return Taken::kRefused;
  peer->refusals.fetch_add(1, std::memory_order_relaxed);
  const Status status(code, std::move(text));
  Enqueue(
      [this, peer = peer->shared_from_this(), status, id = opened ? header.parameter : kMaxIds] {
        std::vector<uint32_t> cookies;
        if (ServedParameter* p = table_.Find(id)) {
          std::lock_guard<std::mutex> lock(p->members);
          for (const Opener& opener : p->openers) {
            if (opener.peer == peer) cookies.push_back(opener.cookie);
          }
        }
        if (cookies.empty()) cookies.push_back(kNoCookie);
        for (uint32_t cookie : cookies) SendRefusal(peer, cookie, status);
        peer->refusals.fetch_sub(1, std::memory_order_relaxed);
      });
  return Taken::kRefused;
}

void ParameterServer::Impl::SendRefusal(const std::shared_ptr<StorePeer>& peer, uint32_t cookie,
                                        const Status& status) {
  // Beyond a number that tells enough, a worker that does not read gets no more of them.
  const auto unsent = std::count_if(backlog_.begin(), backlog_.end(), [&](const Outgoing& o) {
    return o.peer == peer && o.kind == MessageKind::kRefused;
  });
  if (unsent >= static_cast<std::ptrdiff_t>(kMaxRefusals)) return;
  SendSoon({peer, MessageKind::kRefused, Encode(Refusal{cookie, status}), nullptr, cookie});
}

void ParameterServer::Impl::SendSoon(Outgoing message) {
  if (message.notice_of != nullptr) {
    for (const Outgoing& waiting : backlog_) {
      if (waiting.notice_of == message.notice_of && waiting.cookie == message.cookie &&
          waiting.peer == message.peer) {
        return;  // it will tell the version of the day that it is sent
      }
    }
  }
  if (!TrySend(message)) backlog_.push_back(std::move(message));
}

// True when there is nothing more to do for the message.
bool ParameterServer::Impl::TrySend(const Outgoing& message) {
  auto connection = message.peer->connection.lock();
  if (connection == nullptr || message.peer->closed.load(std::memory_order_acquire)) return true;
  if (ServedParameter* p = message.notice_of) {
    const PublishedNotice notice{message.cookie, 0, p->info.blocks, 0,
                                 p->version.load(std::memory_order_acquire)};
    const Span<const uint8_t> head(reinterpret_cast<const uint8_t*>(&notice), sizeof(notice));
    return connection->TrySend({message.kind, 0, head, {}}).code() !=
           StatusCode::kResourceExhausted;
  }
  const OutgoingMessage outgoing{message.kind, 0, {}, BytesOf(message.payload)};
  if (message.payload.size() > connection->max_payload()) {
    // What cannot be sent whole fails the connection.
    return connection->Send(outgoing, Deadline::After(kLargeReplySeconds)).code() !=
           StatusCode::kDeadlineExceeded;
  }
  return connection->TrySend(outgoing).code() != StatusCode::kResourceExhausted;
}

void ParameterServer::Impl::OnClosed(Connection& connection, const Status& status) {
  auto* const context = static_cast<StorePeer*>(connection.context());
  if (context == nullptr || context->closed.exchange(true, std::memory_order_acq_rel)) return;
  auto peer = context->shared_from_this();
  Enqueue([this, peer = std::move(peer), status] { ForgetPeer(peer, status); });
}

void ParameterServer::Impl::ForgetPeer(const std::shared_ptr<StorePeer>& peer,
                                       const Status& status) {
  std::vector<ServedParameter*> opened;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      auto& opens = it->second;
      opens.erase(std::remove_if(opens.begin(), opens.end(),
                                 [&](const WaitingOpen& open) { return open.peer == peer; }),
                  opens.end());
      it = opens.empty() ? waiting_.erase(it) : std::next(it);
    }
    for (const auto& p : parameters_) {
      if (peer->opened.Has(p->id)) opened.push_back(p.get());
    }
  }
  for (ServedParameter* p : opened) ForgetIn(*p, *peer, status);
  peer->exports.clear();
}

void ParameterServer::Impl::ForgetIn(ServedParameter& p, StorePeer& peer, const Status& status) {
  {
    std::lock_guard<std::mutex> lock(p.members);
    auto& openers = p.openers;
    openers.erase(std::remove_if(openers.begin(), openers.end(),
                                 [&](const Opener& opener) { return opener.peer.get() == &peer; }),
                  openers.end());
    bool pushed = false;
    for (Contributor& contributor : p.contributors) {
      if (contributor.connection.load(std::memory_order_relaxed) != peer.id) continue;
      contributor.ended = status;
      contributor.left_behind = true;
      pushed = true;
    }
    if (!pushed && p.bsp() && status.code() == StatusCode::kUnavailable) p.lost.push_back(status);
  }
  for (ServedBlock& block : p.blocks) {
    std::vector<HeldPush> dropped;
    {
      SpinGuard guard(block.flag);
      auto first =
          std::stable_partition(block.held.begin(), block.held.end(),
                                [&](const HeldPush& held) { return held.peer.get() != &peer; });
      std::move(first, block.held.end(), std::back_inserter(dropped));
      block.held.erase(first, block.held.end());
    }
    for (HeldPush& held : dropped) held.Release();
  }
  p.progress.Notify();
  EndHopeless(p);
}

}  // namespace rdmabatch
