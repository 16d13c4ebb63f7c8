// MessageQueue: user messages between the engine's progress thread and Python.
//
// Bounded: a message that does not fit any more stays in its slot until Python took those before
// it, so that a sender stalls once all its slots are taken. Progress and control threads put, any
// thread takes; waits end at their deadline, when the connection ended, or with Stop.
#ifndef TF_RDMABATCH_CC_PYTHON_MESSAGE_QUEUE_H_
#define TF_RDMABATCH_CC_PYTHON_MESSAGE_QUEUE_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/engine/connection.h"
#include "tf_rdmabatch/cc/engine/message.h"

namespace rdmabatch::python {

// A message and, where it still lies in its slot, the hold on it.
class QueuedMessage {
 public:
  QueuedMessage() = default;
  QueuedMessage(std::shared_ptr<Connection> connection, const IncomingMessage& message, bool copy);
  QueuedMessage(QueuedMessage&& other) noexcept = default;
  QueuedMessage& operator=(QueuedMessage&& other) noexcept = default;

  const std::shared_ptr<Connection>& connection() const { return connection_; }
  uint64_t tag() const { return tag_; }
  Span<const uint8_t> payload() const { return payload_; }
  // The bytes that the queue keeps for it.
  uint64_t kept_bytes() const { return copy_.size(); }
  // Gives the slot back, if it is held: the payload is gone then. Exactly once.
  void Release();

 private:
  std::shared_ptr<Connection> connection_;
  uint64_t tag_ = 0;
  Span<const uint8_t> payload_;
  std::vector<uint8_t> copy_;
  SlotHold hold_;
  bool held_ = false;
};

class MessageQueue : public MessageSink {
 public:
  struct Inbox {
    std::deque<QueuedMessage> messages;
    uint64_t kept_bytes = 0;
    bool ready = false;  // in ready_
    bool closed = false;
    Status status;  // why it was closed
  };

  // For each connection; a message is copied while fewer bytes are kept.
  explicit MessageQueue(uint64_t most_bytes) : most_bytes_(most_bytes) {}

  // The messages of a connection that was announced with OnConnected.
  std::shared_ptr<Inbox> InboxOf(const Connection& connection);
  // The next message of `inbox`; null: of any connection, fairly. What arrived before a connection
  // ended is delivered first.
  Status Take(Inbox* inbox, QueuedMessage* message, Deadline deadline);
  void Stop();

  void OnConnected(Connection& connection) override;
  Disposition OnMessage(Connection& connection, const IncomingMessage& message) override;
  void OnClosed(Connection& connection, const Status& status) override;

 private:
  Inbox* NextReady();

  const uint64_t most_bytes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::unordered_map<uint64_t, std::shared_ptr<Inbox>> inboxes_;  // of live connections
  std::deque<std::shared_ptr<Inbox>> ready_;  // those with messages, and some already emptied
};

}  // namespace rdmabatch::python

#endif  // TF_RDMABATCH_CC_PYTHON_MESSAGE_QUEUE_H_
