#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tf_rdmabatch/cc/transport/tcp/input.h"

namespace rdmabatch::tcp {
namespace {

// What one connection may take in before the others have their turn.
constexpr size_t kTurnBytes = 1 << 20;
// After a payload as large as this another one is expected, within a few small ones (the words of
// its chain). It had better not be copied twice: only so much is received into staging.
constexpr uint32_t kLargeBytes = 16 << 10;
constexpr uint32_t kSmallBetween = 8;
constexpr size_t kLookAheadBytes = 1 << 10;

// Bitmap and version words: other threads load them whole.
void Place(uint8_t* to, const uint8_t* from, uint32_t bytes) {
  if (bytes == sizeof(uint64_t) && reinterpret_cast<uintptr_t>(to) % sizeof(uint64_t) == 0) {
    uint64_t word;
    std::memcpy(&word, from, sizeof(word));
    __atomic_store_n(reinterpret_cast<uint64_t*>(to), word, __ATOMIC_RELEASE);
  } else if (bytes != 0) {
    std::memcpy(to, from, bytes);
  }
}

ssize_t ReceiveScattered(const Link& link, msghdr* message, size_t most) {
  if (link.tls() != nullptr)
    return link.tls()->Receive(message->msg_iov, message->msg_iovlen, most);
  return recvmsg(link.socket(), message, MSG_DONTWAIT);
}

// Received and not yet taken, of which the socket does not tell.
size_t Pending(const Link& link) { return link.tls() == nullptr ? 0 : link.tls()->pending(); }

}  // namespace

Input::Input(Link* link, SendQueue* queue, Output* output, const Exports* exports,
             const EndpointOptions& options)
    : link_(link),
      queue_(queue),
      output_(output),
      exports_(exports),
      counters_(options.counters),
      context_(options.context),
      staging_(new uint8_t[kStagingBytes]) {}

size_t Input::Take(Span<Completion> completions, bool readable) {
  const Failure* failed = link_->failure();
  // What came before the peer went is still taken.
  if (link_->closed() || (failed != nullptr && failed != &kPeerGone)) ended_ = true;
  size_t count = HandleStaged(completions);
  size_t received = 0;
  readable = readable || Pending(*link_) != 0;
  while (readable && !ended_ && count < completions.size() &&
         (received < kTurnBytes || Pending(*link_) != 0)) {
    readable = Receive(&received);
    count += HandleStaged(completions.subspan(count));
  }
  if (count != 0) {
    output_->Acknowledge(static_cast<uint32_t>(count));
    counters_->receive_completions.Add(count);
  }
  if (replies_ && !ended_) output_->Send();
  replies_ = false;
  return count;
}

size_t Input::HandleStaged(Span<Completion> completions) {
  size_t count = 0;
  while (!ended_ && count < completions.size()) {
    if (in_payload_) {
      if (left_ != 0) break;
      FinishPayload();
      if (frame_.type == FrameType::kWriteImm) {
        completions[count++] = {context_, frame_.immediate, true, nullptr};
      }
      continue;
    }
    const size_t staged = end_ - begin_;
    if (staged < sizeof(frame_)) break;
    std::memcpy(&frame_, &staging_[begin_], sizeof(frame_));
    if (!Plausible(frame_)) {
      End(kBadFrame);
    } else if (!frame_.HasPayload()) {
      begin_ += sizeof(frame_);
      HandleBare(frame_);
    } else {
      if (frame_.length <= kSmallBytes && staged - sizeof(frame_) < frame_.length) break;
      to_ = Destination(frame_);
      if (to_ == nullptr) break;
      if (frame_.length >= kLargeBytes) {
        large_expected_ = kSmallBetween;
      } else if (large_expected_ != 0) {
        --large_expected_;
      }
      begin_ += sizeof(frame_);
      const auto here = static_cast<uint32_t>(std::min<size_t>(frame_.length, end_ - begin_));
      Place(to_, &staging_[begin_], here);
      begin_ += here;
      to_ += here;
      left_ = frame_.length - here;
      in_payload_ = true;
    }
  }
  return count;
}

void Input::HandleBare(const Frame& frame) {
  if (frame.type == FrameType::kAck) {
    if (!queue_->AddPerceived(frame.immediate)) End(kBadFrame);
    return;
  }
  const Registration* region =
      exports_->Find(frame.region, frame.offset, frame.length, OpCode::kRead);
  if (region == nullptr) return End(kOutOfReach);
  if (!output_->AddReply(region, region->address + frame.offset, frame.length)) {
    return End(kTooManyReads);
  }
  replies_ = true;
}

uint8_t* Input::Destination(const Frame& frame) {
  region_ = nullptr;
  if (frame.type == FrameType::kReply) {
    const SendQueue::Read* read = queue_->oldest_read();
    if (read != nullptr && frame.length <= read->left) return read->to;
    End(kBadFrame);
    return nullptr;
  }
  if (frame.length == 0) return staging_.get();
  region_ = exports_->Find(frame.region, frame.offset, frame.length, OpCode::kWrite);
  if (region_ != nullptr) return region_->address + frame.offset;
  End(kOutOfReach);
  return nullptr;
}

void Input::FinishPayload() {
  in_payload_ = false;
  if (frame_.type != FrameType::kReply) return;
  SendQueue::Read* read = queue_->oldest_read();
  read->to += frame_.length;
  read->left -= frame_.length;
  if (read->left == 0) queue_->FinishRead();
}

bool Input::Receive(size_t* received) {
  if (!DestinationAlive()) {
    End(kRegionGone);
    return false;
  }
  if (begin_ != 0) {
    std::memmove(&staging_[0], &staging_[begin_], end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const size_t room = kStagingBytes - end_;
  iovec iov[2] = {{to_, left_},
                  {&staging_[end_], large_expected_ == 0 ? room : std::min(room, kLookAheadBytes)}};
  msghdr message{};
  message.msg_iov = left_ != 0 ? iov : iov + 1;
  message.msg_iovlen = left_ != 0 ? 2 : 1;
  const size_t most = *received < kTurnBytes ? SIZE_MAX : Pending(*link_);
  const ssize_t n = ReceiveScattered(*link_, &message, most);
  counters_->receive_calls.Add(1);
  if (n < 0 && errno == EINTR) return true;
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
  if (n < 0 && errno == EBADMSG) {
    End(kForged);
    return false;
  }
  if (n <= 0) {
    End(left_ != 0 || end_ != 0 ? kCutOff : kPeerGone);
    return false;
  }
  const auto got = static_cast<size_t>(n);
  *received += got;
  const auto straight = static_cast<uint32_t>(std::min<size_t>(got, left_));
  const bool drained = got < left_ + iov[1].iov_len;
  to_ += straight;
  left_ -= straight;
  end_ += got - straight;
  return !drained;
}

void Input::End(const Failure& failure) {
  link_->Break(failure);
  ended_ = true;
}

}  // namespace rdmabatch::tcp
