#include "tf_rdmabatch/cc/bench/message_task.h"

#include <algorithm>

namespace rdmabatch::bench {
namespace {

// Messages that are sent to one peer before the next one has its turn.
constexpr int kRun = 64;
// How soon a stop is noticed by a sender that waits for slots.
constexpr double kSlice = 0.05;
// For a message that is larger than a slot: once begun it has to be finished.
constexpr double kWhole = 30;

}  // namespace

Result<std::unique_ptr<Task>> MessageTask::Create(const TaskOptions& options) {
  if (options.sends != "nobody" && options.sends != "connected" && options.sends != "accepted") {
    return Status(StatusCode::kInvalidArgument, "nobody to send to is called " + options.sends);
  }
  std::unique_ptr<MessageTask> task(new MessageTask(options));
  task->payload_.assign(options.bytes, 1);
  auto engine = Engine::Create(options.engine, task.get());
  if (!engine.ok()) return engine.status();
  task->engine_ = std::move(*engine);
  return std::unique_ptr<Task>(std::move(task));
}

MessageTask::~MessageTask() { engine_.reset(); }

void MessageTask::OnConnected(Connection& connection) {
  std::lock_guard<std::mutex> lock(mutex_);
  Peer& peer = peers_.emplace_back();
  peer.connection = connection.shared_from_this();
  connection.set_context(&peer);
}

void MessageTask::OnConnectedTo(const std::shared_ptr<Connection>& connection) {
  std::lock_guard<std::mutex> lock(mutex_);
  connected_.push_back(static_cast<Peer*>(connection->context()));
}

Disposition MessageTask::OnMessage(Connection& connection, const IncomingMessage& message) {
  Peer& peer = *static_cast<Peer*>(connection.context());
  switch (message.tag) {
    case kLoad:
      peer.arrived.Add(1);
      return Disposition::kDone;
    case kPing:
      peer.arrived.Add(1);
      SendSoon(peer, kPong);
      return Disposition::kDone;
    case kPong: {
      const int64_t now = NowNs();
      if (counting()) peer.latencies.Add(static_cast<uint64_t>(now - peer.sent_ns) / 2);
      if (stopped()) return Disposition::kDone;
      peer.sent_ns = NowNs();
      SendSoon(peer, kPing);
      return Disposition::kDone;
    }
    default:
      return Disposition::kViolate;
  }
}

OutgoingMessage MessageTask::Message(Tag tag) const {
  OutgoingMessage message;
  message.tag = tag;
  message.body = {payload_.data(), payload_.size()};
  return message;
}

void MessageTask::SendSoon(Peer& peer, Tag tag) {
  if (options_.bytes <= peer.connection->max_payload() &&
      peer.connection->TrySend(Message(tag)).ok()) {
    return;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  later_.emplace_back(&peer, tag);
  later_changed_.notify_one();
}

std::vector<MessageTask::Peer*> MessageTask::Targets() const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (options_.sends == "connected") return connected_;
  std::vector<Peer*> targets;
  if (options_.sends == "accepted") {
    for (const Peer& peer : peers_) targets.push_back(const_cast<Peer*>(&peer));
  }
  return targets;
}

Status MessageTask::Work(Phase phase) {
  const std::vector<Peer*> targets = Targets();
  if (phase == Phase::kLatency) return SendPings(targets);
  return targets.empty() ? Status::Ok() : SendLoad(targets);
}

Status MessageTask::SendRun(Peer& peer, uint64_t* sent) {
  const OutgoingMessage message = Message(kLoad);
  for (int i = 0; i < kRun; ++i) {
    Status status = peer.connection->TrySend(message, /*more=*/true);
    if (status.code() == StatusCode::kResourceExhausted) break;
    if (!status.ok()) return status;
    ++*sent;
  }
  return Status::Ok();
}

// Goes round the peers; only when none of them took anything does it wait for one.
Status MessageTask::SendLoad(const std::vector<Peer*>& targets) {
  const OutgoingMessage message = Message(kLoad);
  const bool whole = options_.bytes <= targets[0]->connection->max_payload();
  const bool alone = targets.size() == 1;
  size_t turn = 0;
  while (!stopped()) {
    uint64_t sent = 0;
    if (whole && !alone) {
      for (Peer* peer : targets) RDMABATCH_RETURN_IF_ERROR(SendRun(*peer, &sent));
    }
    if (sent > 0) continue;
    Connection& connection = *targets[turn++ % targets.size()]->connection;
    const Deadline deadline = Deadline::After(whole ? kSlice : kWhole);
    for (int i = 0; i < (alone ? kRun : 1) && !stopped(); ++i) {
      Status status = connection.Send(message, deadline, /*more=*/true);
      if (status.code() == StatusCode::kDeadlineExceeded && whole) break;
      if (!status.ok()) return status;
    }
  }
  for (Peer* peer : targets) peer->connection->Flush();
  return Status::Ok();
}

Status MessageTask::SendPings(const std::vector<Peer*>& targets) {
  for (Peer* peer : targets) {
    peer->sent_ns = NowNs();
    RDMABATCH_RETURN_IF_ERROR(peer->connection->Send(Message(kPing), Deadline::After(kWhole)));
  }
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopped()) {
    if (later_.empty()) {
      later_changed_.wait(lock);
      continue;
    }
    const auto [peer, tag] = later_.front();
    later_.pop_front();
    lock.unlock();
    RDMABATCH_RETURN_IF_ERROR(peer->connection->Send(Message(tag), Deadline::After(kWhole)));
    lock.lock();
  }
  return Status::Ok();
}

void MessageTask::Interrupt() {
  std::lock_guard<std::mutex> lock(mutex_);
  later_changed_.notify_all();
}

std::vector<uint64_t> MessageTask::Arrived() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<uint64_t> arrived;
  for (const Peer& peer : peers_) arrived.push_back(peer.arrived.value());
  return arrived;
}

void MessageTask::AddLatencies(Measurement* measurement) const {
  std::lock_guard<std::mutex> lock(mutex_);
  measurement->peers.resize(peers_.size());
  size_t i = 0;
  for (const Peer& peer : peers_) measurement->peers[i++].latencies = peer.latencies.buckets();
}

}  // namespace rdmabatch::bench
