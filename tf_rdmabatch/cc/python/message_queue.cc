#include "tf_rdmabatch/cc/python/message_queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "tf_rdmabatch/cc/base/log.h"

namespace rdmabatch::python {
namespace {

constexpr size_t kMostMessages = 65536;
// Connections that ended before Python took their messages; the oldest beyond are dropped.
constexpr size_t kMostReady = 4096;

}  // namespace

QueuedMessage::QueuedMessage(std::shared_ptr<Connection> connection, const IncomingMessage& message,
                             bool copy)
    : connection_(std::move(connection)), tag_(message.tag), payload_(message.payload) {
  if (copy) {
    copy_.assign(message.payload.begin(), message.payload.end());
    payload_ = {copy_.data(), copy_.size()};
  } else {
    hold_ = message.hold;
    held_ = true;
  }
}

void QueuedMessage::Release() {
  if (std::exchange(held_, false)) connection_->Release(hold_);
}

std::shared_ptr<MessageQueue::Inbox> MessageQueue::InboxOf(const Connection& connection) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto live = inboxes_.find(connection.id());
  if (live != inboxes_.end()) return live->second;
  // It ended already; its messages may still be here.
  for (const auto& inbox : ready_) {
    if (!inbox->messages.empty() && inbox->messages.front().connection().get() == &connection) {
      return inbox;
    }
  }
  auto empty = std::make_shared<Inbox>();
  empty->closed = true;
  empty->status = connection.status();
  return empty;
}

MessageQueue::Inbox* MessageQueue::NextReady() {
  while (!ready_.empty() && ready_.front()->messages.empty()) {
    ready_.front()->ready = false;
    ready_.pop_front();
  }
  if (ready_.empty()) return nullptr;
  // Round robin: the others come before its next message.
  std::rotate(ready_.begin(), ready_.begin() + 1, ready_.end());
  return ready_.back().get();
}

Status MessageQueue::Take(Inbox* inbox, QueuedMessage* message, Deadline deadline) {
  const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(deadline.at_ns())};
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    Inbox* from = inbox != nullptr ? inbox : NextReady();
    if (from != nullptr && !from->messages.empty()) {
      *message = std::move(from->messages.front());
      from->messages.pop_front();
      from->kept_bytes -= message->kept_bytes();
      return Status::Ok();
    }
    if (from != nullptr && from->closed) return from->status;
    if (stopped_) return {StatusCode::kCancelled, "the engine was closed"};
    if (deadline.expired()) {
      return {StatusCode::kDeadlineExceeded, "no message arrived within the timeout"};
    }
    changed_.wait_until(lock, until);
  }
}

void MessageQueue::Stop() {
  std::lock_guard<std::mutex> lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

void MessageQueue::OnConnected(Connection& connection) {
  std::lock_guard<std::mutex> lock(mutex_);
  inboxes_.emplace(connection.id(), std::make_shared<Inbox>());
}

Disposition MessageQueue::OnMessage(Connection& connection, const IncomingMessage& message) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = inboxes_.find(connection.id());
  if (found == inboxes_.end()) return Disposition::kDone;
  const std::shared_ptr<Inbox>& inbox = found->second;
  // A message that fills the queue is still taken, or a large one might never be.
  const bool fits = inbox->kept_bytes < most_bytes_ && inbox->messages.size() < kMostMessages;
  // A large message is in no slot that could be held.
  if (!fits && !message.holdable) {
    Log(LogLevel::kWarning, "closing the connection to " + connection.peer().name + " (" +
                                connection.peer().address + ")" +
                                ": its receive buffer is full, and a message larger than a slot "
                                "came");
    return Disposition::kViolate;
  }
  inbox->messages.emplace_back(connection.shared_from_this(), message, fits);
  inbox->kept_bytes += inbox->messages.back().kept_bytes();
  if (!inbox->ready) {
    inbox->ready = true;
    ready_.push_back(inbox);
  }
  changed_.notify_all();
  return fits ? Disposition::kDone : Disposition::kHold;
}

void MessageQueue::OnClosed(Connection& connection, const Status& status) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = inboxes_.find(connection.id());
  if (found == inboxes_.end()) return;
  found->second->closed = true;
  found->second->status = status;
  inboxes_.erase(found);
  if (ready_.size() > kMostReady) {
    const auto oldest =
        std::find_if(ready_.begin(), ready_.end(), [](const auto& inbox) { return inbox->closed; });
    if (oldest != ready_.end()) {
      (*oldest)->ready = false;
      ready_.erase(oldest);
    }
  }
  changed_.notify_all();
}

}  // namespace rdmabatch::python
