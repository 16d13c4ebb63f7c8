// Messages as the engine's users see them.
#ifndef TF_RDMABATCH_CC_ENGINE_MESSAGE_H_
#define TF_RDMABATCH_CC_ENGINE_MESSAGE_H_

#include <cstdint>

#include "tf_rdmabatch/cc/base/span.h"
#include "tf_rdmabatch/cc/base/status.h"

namespace rdmabatch {

class Connection;

// Kinds below kUserKind belong to the engine.
enum class MessageKind : uint8_t {
  kOpen = 1,       // worker asks for a parameter by name
  kOpened = 2,     // server describes it
  kPush = 3,       // worker -> server: a block of a contribution
  kPublished = 4,  // server -> worker: blocks carry a new version
  kPulled = 5,     // worker -> server: the end of a worker's reads of a version
  kRefused = 6,    // server -> worker: why a message of its was refused
  kUser = 16,
};

// To send: `head` and `body` are joined on the wire.
struct OutgoingMessage {
  MessageKind kind = MessageKind::kUser;
  uint64_t tag = 0;
  Span<const uint8_t> head;
  Span<const uint8_t> body;
};

// A slot whose message is still needed after the handler returned. A plain value: release it
// exactly once.
struct SlotHold {
  uint32_t lane = 0;
  uint32_t slot = 0;
};

// Received: `payload` lies in the slot (aligned to 8 bytes) and is valid until the handler returns,
// or until the hold is released when the handler kept it. The peer may still scribble on it: copy a
// length before checking it.
struct IncomingMessage {
  MessageKind kind;
  uint64_t tag;
  Span<const uint8_t> payload;
  SlotHold hold;
  bool holdable;  // false for a reassembled message, whose payload is gone when the handler returns
};

enum class Disposition : uint8_t {
  kDone,     // the slot may be freed
  kHold,     // the slot stays until Connection::Release(hold)
  kViolate,  // the message breaks the protocol: the connection is failed
};

// Where arrivals go. Every call comes from the engine's progress thread (OnConnected and OnClosed:
// from its control threads), must not block, and must not throw.
class MessageSink {
 public:
  virtual ~MessageSink() = default;
  // On the listening side the peer is ready; the connecting side sends once Connect has returned.
  virtual void OnConnected(Connection&) {}
  virtual Disposition OnMessage(Connection& connection, const IncomingMessage& message) = 0;
  virtual void OnClosed(Connection&, const Status&) {}
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_MESSAGE_H_
