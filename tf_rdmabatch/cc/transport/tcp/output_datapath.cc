#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "tf_rdmabatch/cc/base/unchecked_reads.h"
#include "tf_rdmabatch/cc/transport/tcp/output.h"

namespace rdmabatch::tcp {
namespace {

// Payload of own work, and of answers, in one gathered send: so neither keeps the other waiting.
constexpr size_t kGatherBytes = 512 << 10;
// An answer goes out in parts, so that messages pass it.
constexpr uint32_t kReplyBytes = 256 << 10;
// After so much the progress thread goes on, which has other connections to serve.
constexpr size_t kTurnBytes = 4 << 20;

uint32_t PowerOfTwoAtLeast(uint32_t value) {
  uint32_t power = 1;
  while (power < value) power *= 2;
  return power;
}

ssize_t SendGathered(const Link& link, const msghdr& message) {
  if (link.tls() != nullptr) return link.tls()->Send(message.msg_iov, message.msg_iovlen);
  const UncheckedReads answers_to_peers;
  return sendmsg(link.socket(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool IsWord(const uint8_t* address, uint32_t bytes) {
  return bytes == sizeof(uint64_t) && reinterpret_cast<uintptr_t>(address) % sizeof(uint64_t) == 0;
}

}  // namespace

Output::Output(Link* link, SendQueue* queue, Counters* counters, uint32_t most_reads)
    : link_(link),
      queue_(queue),
      counters_(counters),
      gathered_(queue->first_index()),
      most_replies_(most_reads),
      reply_mask_(PowerOfTwoAtLeast(most_reads) - 1),
      replies_(new Reply[reply_mask_ + 1]) {}

void Output::Send() {
  if (wanted_.fetch_add(1, std::memory_order_acq_rel) != 0) return;
  for (uint32_t served = 1; served != 0;) {
    {
      const PollGate::Inside inside(&gate_);
      SendUntilFull();
    }
    // What is left came meanwhile, from threads that did not wait.
    served = wanted_.fetch_sub(served, std::memory_order_acq_rel) - served;
  }
}

void Output::SendUntilFull() {
  if (waits_for_room_) {
    if (!room_.exchange(false, std::memory_order_seq_cst)) return;
    waits_for_room_ = false;
  }
  for (size_t sent = 0;;) {
    if (link_->failure() != nullptr || link_->closed()) return;
    if (iov_next_ == iov_end_ && !Gather()) break;
    if (!RegionsAlive()) return link_->Break(kRegionGone);
    msghdr message{};
    message.msg_iov = &iov_[iov_next_];
    message.msg_iovlen = iov_end_ - iov_next_;
    const ssize_t n = SendGathered(*link_, message);
    counters_->send_calls.AddShared(1);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return link_->Break(kPeerGone);
      return AwaitRoom();
    }
    Advance(static_cast<size_t>(n));
    sent += static_cast<size_t>(n);
    // Answers that are under way with it do not hold it back.
    if (iov_next_ >= work_end_) queue_->set_sent(gathered_);
    if (iov_next_ != iov_end_ || sent >= kTurnBytes) return AwaitRoom();
  }
  if (watches_room_) {
    watches_room_ = false;
    link_->WatchForRoom(false);
  }
}

// The event is there at once when there is room.
void Output::AwaitRoom() {
  waits_for_room_ = true;
  if (watches_room_) return;
  watches_room_ = true;
  link_->WatchForRoom(true);
}

void Output::Add(const void* bytes, size_t size) {
  iov_[iov_end_++] = {const_cast<void*>(bytes), size};
}

void Output::Advance(size_t bytes) {
  while (iov_next_ != iov_end_ && bytes >= iov_[iov_next_].iov_len) {
    bytes -= iov_[iov_next_++].iov_len;
  }
  if (iov_next_ == iov_end_) return;
  iov_[iov_next_].iov_base = static_cast<uint8_t*>(iov_[iov_next_].iov_base) + bytes;
  iov_[iov_next_].iov_len -= bytes;
}

bool Output::Gather() {
  iov_next_ = iov_end_ = 0;
  reply_frames_used_ = 0;
  const uint32_t perceived = perceived_.load(std::memory_order_acquire);
  const uint32_t acknowledged = acknowledged_.load(std::memory_order_relaxed);
  if (perceived != acknowledged || keep_alive_.exchange(false, std::memory_order_relaxed)) {
    ack_ = Frame{};
    ack_.immediate = perceived - acknowledged;
    Add(&ack_, sizeof(ack_));
    acknowledged_.store(perceived, std::memory_order_relaxed);
  }
  GatherWork();
  work_end_ = iov_end_;
  GatherReplies();
  return iov_end_ != 0;
}

void Output::GatherWork() {
  const uint32_t posted = queue_->posted();
  const uint32_t most = kMaxIov - 2 * kMaxReplies - 1;
  for (size_t bytes = 0; gathered_ != posted && iov_end_ < most && bytes < kGatherBytes;
       ++gathered_) {
    const SendQueue::Entry& entry = queue_->entry(gathered_);
    Add(&entry.frame, entry.frame_bytes);
    if (entry.payload_bytes != 0) Add(entry.payload, entry.payload_bytes);
    bytes += entry.frame_bytes + entry.payload_bytes;
  }
}

void Output::GatherReplies() {
  uint32_t next = replied_.load(std::memory_order_relaxed);
  const uint32_t end = reply_end_.load(std::memory_order_acquire);
  for (size_t bytes = 0; next != end && reply_frames_used_ < kMaxReplies && bytes < kGatherBytes;) {
    Reply& reply = replies_[next & reply_mask_];
    if (!reply.region->alive.load(std::memory_order_seq_cst)) {
      link_->Break(kRegionGone);
      break;
    }
    ReplyFrame& out = reply_frames_[reply_frames_used_];
    const uint32_t part = std::min(reply.left, kReplyBytes);
    out.frame = Frame{};
    out.frame.type = FrameType::kReply;
    out.frame.length = part;
    if (IsWord(reply.from, part)) {
      // Whole, and not before what was asked for earlier has been read.
      if (bytes != 0) break;
      out.region = nullptr;
      out.word = __atomic_load_n(reinterpret_cast<const uint64_t*>(reply.from), __ATOMIC_ACQUIRE);
      Add(&out.frame, sizeof(out.frame) + sizeof(out.word));
    } else {
      out.region = reply.region;
      out.part = iov_end_ + 1;
      Add(&out.frame, sizeof(out.frame));
      Add(reply.from, part);
      bytes += part;
    }
    ++reply_frames_used_;
    reply.from += part;
    reply.left -= part;
    if (reply.left == 0) ++next;
  }
  replied_.store(next, std::memory_order_release);
}

bool Output::RegionsAlive() const {
  for (uint32_t i = 0; i < reply_frames_used_; ++i) {
    const ReplyFrame& reply = reply_frames_[i];
    if (reply.region == nullptr || reply.part < iov_next_) continue;
    if (!reply.region->alive.load(std::memory_order_seq_cst)) return false;
  }
  return true;
}

bool Output::AddReply(const Registration* region, const uint8_t* from, uint32_t bytes) {
  const uint32_t end = reply_end_.load(std::memory_order_relaxed);
  if (end - replied_.load(std::memory_order_acquire) >= most_replies_) return false;
  replies_[end & reply_mask_] = {region, from, bytes};
  reply_end_.store(end + 1, std::memory_order_release);
  return true;
}

}  // namespace rdmabatch::tcp
