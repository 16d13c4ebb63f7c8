// Output: the sending half of a connection. What is queued (own work requests, answers to the
// peer's reads, acknowledgements) leaves in gathered sends.
#ifndef TF_RDMABATCH_CC_TRANSPORT_TCP_OUTPUT_H_
#define TF_RDMABATCH_CC_TRANSPORT_TCP_OUTPUT_H_

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tf_rdmabatch/cc/transport/poll_gate.h"
#include "tf_rdmabatch/cc/transport/tcp/exports.h"
#include "tf_rdmabatch/cc/transport/tcp/link.h"
#include "tf_rdmabatch/cc/transport/tcp/send_queue.h"
#include "tf_rdmabatch/cc/transport/tcp/wire.h"

namespace rdmabatch::tcp {

// The send side and the progress thread both have something to send, and neither waits for the
// other: whoever calls Send while another thread is sending leaves it to that thread. So exactly
// one thread at a time is "the sender".
class Output {
 public:
  // `most_reads`: how many reads the peer may have outstanding.
  Output(Link* link, SendQueue* queue, Counters* counters, uint32_t most_reads);

  // Any thread. Sends what is queued until the socket is full, or for a while; the rest goes when
  // the progress thread finds room in the socket.
  void Send();

  // Progress thread: there is room again.
  void HaveRoom() {
    room_.store(true, std::memory_order_seq_cst);
    Send();
  }
  // Progress thread: sends something that the peer's kernel has to acknowledge.
  void KeepAlive() {
    keep_alive_.store(true, std::memory_order_relaxed);
    Send();
  }
  // Progress thread: immediates that were perceived; said with what is sent next.
  void Acknowledge(uint32_t count) {
    perceived_.store(perceived_.load(std::memory_order_relaxed) + count, std::memory_order_release);
  }
  bool owes_acknowledgement() const {
    return perceived_.load(std::memory_order_relaxed) !=
           acknowledged_.load(std::memory_order_relaxed);
  }
  // Progress thread: answers a read of `bytes` at `from`, in a region. False when too many are
  // waiting.
  bool AddReply(const Registration* region, const uint8_t* from, uint32_t bytes);

  // Returns once no thread uses memory that was sent from when the call began.
  void AwaitOutside() const { gate_.AwaitOutside(); }

 private:
  static constexpr uint32_t kMaxIov = 128;
  static constexpr uint32_t kMaxReplies = 16;  // in one gathered send

  // A read of the peer that is not yet answered in full.
  struct Reply {
    const Registration* region;
    const uint8_t* from;
    uint32_t left;
  };
  // The header of a part of an answer, and the word where that is all. Else the part is the entry
  // `part` of the iov, in `region`.
  struct ReplyFrame {
    Frame frame;
    uint64_t word;
    const Registration* region;  // null for a word
    uint32_t part;
  };

  void SendUntilFull();
  // False when nothing is queued.
  bool Gather();
  void GatherWork();
  void GatherReplies();
  void Add(const void* bytes, size_t size);
  void Advance(size_t bytes);
  // Of what is not yet sent.
  bool RegionsAlive() const;
  void AwaitRoom();

  Link* const link_;
  SendQueue* const queue_;
  Counters* const counters_;
  PollGate gate_;

  std::atomic<uint32_t> wanted_{0};  // calls of Send that the sender has not yet served
  std::atomic<bool> room_{false};

  std::atomic<bool> keep_alive_{false};

  // The sender's.
  bool waits_for_room_ = false;
  bool watches_room_ = false;
  iovec iov_[kMaxIov];
  uint32_t iov_next_ = 0;
  uint32_t iov_end_ = 0;
  uint32_t work_end_ = 0;  // of own work in the iov; answers follow
  uint32_t gathered_;      // index in the queue
  Frame ack_;
  ReplyFrame reply_frames_[kMaxReplies];
  uint32_t reply_frames_used_ = 0;
  std::atomic<uint32_t> acknowledged_{0};
  std::atomic<uint32_t> replied_{0};

  // The progress thread's.
  std::atomic<uint32_t> perceived_{0};
  std::atomic<uint32_t> reply_end_{0};
  const uint32_t most_replies_;
  const uint32_t reply_mask_;
  const std::unique_ptr<Reply[]> replies_;
};

}  // namespace rdmabatch::tcp

#endif  // TF_RDMABATCH_CC_TRANSPORT_TCP_OUTPUT_H_
