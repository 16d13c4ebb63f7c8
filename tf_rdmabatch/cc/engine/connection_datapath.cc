// Sending, receiving and one-sided transfers of a connection.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tf_rdmabatch/cc/base/time_waited.h"
#include "tf_rdmabatch/cc/engine/connection.h"
#include "tf_rdmabatch/cc/engine/sums.h"

namespace rdmabatch {
namespace {

// Tries before a sender or reader goes to sleep.
constexpr int kSpins = 16;
constexpr int kRelaxes = 8;
// Seconds to wait for a slot for the rest of a message.
constexpr double kFragmentSeconds = 30;

size_t BytesOf(const OutgoingMessage& message) { return message.head.size() + message.body.size(); }

Status Missed(const Connection& connection, const char* what) {
  return {StatusCode::kDeadlineExceeded,
          std::string(what) + " " + connection.peer().ToString() + " missed its deadline"};
}

}  // namespace

Status Connection::Send(const OutgoingMessage& message, Deadline deadline, bool more) {
  if (closed()) return status();
  Lane& lane = PickLane();
  if (BytesOf(message) <= lane.max_payload()) return SendPiece(lane, message, 0, more, deadline);
  return SendFragments(message, deadline);
}

Status Connection::TrySend(const OutgoingMessage& message, bool more) {
  if (closed()) return status();
  Lane& lane = PickLane();
  if (BytesOf(message) > lane.max_payload()) {
    return {StatusCode::kInvalidArgument, "the message is larger than a slot"};
  }
  switch (lane.TrySend(message, 0, more)) {
    case SendOutcome::kSent:
      return Status::Ok();
    case SendOutcome::kNoSlot:
      return {StatusCode::kResourceExhausted, "every slot is in use"};
    default:
      return FailureOf(lane);
  }
}

Status Connection::SendPiece(Lane& lane, const OutgoingMessage& piece, uint8_t flags, bool more,
                             Deadline deadline) {
  ScopedWait wait;
  for (int spin = 0;; ++spin) {
    SendOutcome outcome = lane.TrySend(piece, flags, more);
    if (outcome == SendOutcome::kSent) return Status::Ok();
    wait.Begin();
    if (outcome == SendOutcome::kNoSlot && spin < kSpins) {
      // Trying takes the send side, which the progress thread needs to make room.
      RelaxOrYield(kRelaxes);
      continue;
    }
    spin = 0;
    const uint64_t key = lane.writable().Prepare();
    if (outcome == SendOutcome::kNoSlot) {
      lane.WantSlots();
      outcome = lane.TrySend(piece, flags, more);
    }
    if (outcome != SendOutcome::kNoSlot) {
      lane.writable().Cancel();
      if (outcome == SendOutcome::kSent) return Status::Ok();
      return FailureOf(lane);
    }
    if (!lane.writable().Wait(key, deadline)) return Missed(*this, "sending to");
  }
}

Status Connection::SendFragments(const OutgoingMessage& message, Deadline deadline) {
  const uint64_t total = BytesOf(message);
  if (total > max_message_bytes_) {
    return {StatusCode::kInvalidArgument, "the message is larger than max_message_bytes"};
  }
  // One after the other, which bounds what the peer has to put together at a time.
  const TimedGuard guard(fragmenting_, deadline);
  if (!guard.locked()) return Missed(*this, "sending to");
  FragmentHeader header{next_message_++, total, 0};
  uint8_t joint[sizeof(FragmentHeader) + kMaxHeadBytes];
  // The lanes of a connection have slots of one size.
  const uint64_t room = max_payload() - sizeof(header);
  if (message.head.size() > kMaxHeadBytes || message.head.size() > room) {
    return {StatusCode::kInvalidArgument, "the head of a message is too long"};
  }
  Deadline until = deadline;
  while (header.offset < total) {
    Lane& lane = PickLane();
    OutgoingMessage piece{message.kind, message.tag, {}, {}};
    std::memcpy(joint, &header, sizeof(header));
    uint64_t head_bytes = 0;
    if (header.offset == 0 && !message.head.empty()) {
      head_bytes = message.head.size();
      std::memcpy(joint + sizeof(header), message.head.data(), head_bytes);
    }
    const uint64_t body_at = header.offset == 0 ? 0 : header.offset - message.head.size();
    const uint64_t body_bytes = std::min(room - head_bytes, message.body.size() - body_at);
    piece.head = {joint, sizeof(header) + head_bytes};
    piece.body = {message.body.data() + body_at, body_bytes};
    header.offset += head_bytes + body_bytes;
    Status sent = SendPiece(lane, piece, kMessageFragment, header.offset < total, until);
    if (!sent.ok()) {
      if (header.offset == head_bytes + body_bytes) return sent;
      // The peer has a part of it; nothing may follow, and nobody may try again.
      Status broken(StatusCode::kUnavailable, sent.message());
      Fail(broken);
      return broken;
    }
    // What was begun is finished: a deadline is for the first slot.
    const Deadline patience = Deadline::After(kFragmentSeconds);
    if (patience.at_ns() > until.at_ns()) until = patience;
  }
  if (lanes_.size() > 1) Flush();
  return Status::Ok();
}

void Connection::Flush() {
  for (const auto& lane : lanes_) lane->Flush();
}

bool Connection::Serve() {
  bool busy = false;
  for (const auto& lane : lanes_) {
    if (lane->wants_service()) busy |= lane->Service();
  }
  return busy;
}

bool Connection::wants_service() const {
  if (!active_.load(std::memory_order_acquire) || closed()) return false;
  for (const auto& lane : lanes_) {
    if (lane->wants_service()) return true;
  }
  return false;
}

Disposition Connection::OnLaneMessage(const MessageHeader& header, Span<const uint8_t> payload,
                                      SlotHold hold) {
  if ((header.flags & kMessageFragment) != 0) return OnFragment(header, payload);
  return sink_->OnMessage(*this,
                          {static_cast<MessageKind>(header.kind), header.tag, payload, hold, true});
}

Disposition Connection::OnFragment(const MessageHeader& header, Span<const uint8_t> payload) {
  Reassembly::Whole whole;
  if (!reassembly_.Take(payload, &whole)) return Disposition::kViolate;
  if (whole.bytes == nullptr) return Disposition::kDone;
  const Disposition disposition = sink_->OnMessage(*this, {static_cast<MessageKind>(header.kind),
                                                           header.tag,
                                                           {whole.bytes.get(), whole.size},
                                                           {},
                                                           false});
  reassembly_.Reuse(std::move(whole));
  return disposition == Disposition::kHold ? Disposition::kDone : disposition;
}

Status Connection::Read(Span<const RegionTransfer> transfers, Deadline deadline) {
  return TransferAll(transfers, OpCode::kRead, deadline);
}

Status Connection::Write(Span<const RegionTransfer> transfers, Deadline deadline) {
  return TransferAll(transfers, OpCode::kWrite, deadline);
}

Status Connection::CheckTransfer(const RegionTransfer& t, OpCode op) const {
  if (t.local == nullptr || t.remote == nullptr || t.remote->lanes.size() != lanes_.size()) {
    return {StatusCode::kInvalidArgument, "the remote region is not one of this connection"};
  }
  if (t.local->RegisteredWith(transport_.get()) == nullptr) {
    return {StatusCode::kInvalidArgument, "the local region belongs to another engine"};
  }
  if (t.local_offset > t.local->size() || t.bytes > t.local->size() - t.local_offset) {
    return {StatusCode::kOutOfRange, "the range ends beyond the local region"};
  }
  if (t.remote_offset > t.remote->bytes || t.bytes > t.remote->bytes - t.remote_offset) {
    return {StatusCode::kOutOfRange, "the range ends beyond the remote region"};
  }
  if (op == OpCode::kWrite && !t.remote->writable) {
    return {StatusCode::kPermissionDenied, "the remote region may only be read"};
  }
  if (op == OpCode::kRead && !t.remote->readable) {
    return {StatusCode::kPermissionDenied, "the remote region may only be written"};
  }
  return Status::Ok();
}

Status Connection::TransferAll(Span<const RegionTransfer> transfers, OpCode op, Deadline deadline) {
  if (closed()) return status();
  for (const RegionTransfer& t : transfers) RDMABATCH_RETURN_IF_ERROR(CheckTransfer(t, op));
  const size_t index = lanes_.size() == 1 ? 0 : next_lane_.fetch_add(1) % lanes_.size();
  std::vector<Transfer> chain;
  for (const RegionTransfer& t : transfers) {
    if (t.bytes == 0) continue;
    uint8_t* direct = t.remote->direct();
    uint8_t* local = t.local->data() + t.local_offset;
    if (direct == nullptr) {
      chain.push_back({op, *t.local->RegisteredWith(transport_.get()), t.local_offset,
                       t.remote->lanes[index], t.remote_offset, t.bytes});
    } else if (op == OpCode::kRead) {
      CopyStream(local, direct + t.remote_offset, t.bytes);
      CountDirectRead(t.bytes);
    } else {
      CopyStream(direct + t.remote_offset, local, t.bytes);
      direct_writes_.fetch_add(1, std::memory_order_relaxed);
      direct_write_bytes_.fetch_add(t.bytes, std::memory_order_relaxed);
    }
  }
  if (chain.empty()) return Status::Ok();
  return RunTransfers({chain.data(), chain.size()}, *lanes_[index], deadline);
}

void Connection::CountDirectRead(uint64_t bytes) {
  direct_reads_.fetch_add(1, std::memory_order_relaxed);
  direct_read_bytes_.fetch_add(bytes, std::memory_order_relaxed);
}

Status Connection::RunTransfers(Span<const Transfer> transfers, Lane& lane, Deadline deadline) {
  TransferBatch batch;
  Status missed;
  for (int spin = 0; !lane.PostTransfers(transfers, &batch); ++spin) {
    if (lane.failed()) break;
    if (spin < kSpins) {
      RelaxOrYield(1);
      continue;
    }
    spin = 0;
    const uint64_t key = lane.writable().Prepare();
    lane.WantEvents();
    if (lane.PostTransfers(transfers, &batch)) {
      lane.writable().Cancel();
      return Status::Ok();
    }
    if (lane.failed()) {
      lane.writable().Cancel();
      break;
    }
    if (!lane.writable().Wait(key, deadline)) {
      missed = Missed(*this, "a transfer with");
      Fail(missed);
      break;
    }
  }
  if (!lane.failed()) return Status::Ok();
  lane.Quiesce();
  if (!missed.ok()) return missed;
  return FailureOf(lane);
}

}  // namespace rdmabatch
