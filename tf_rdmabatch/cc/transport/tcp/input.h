// Input: the receiving half of a connection. Takes bytes as they come, checks every frame before
// anything is done for it, and puts payload where it belongs. The progress thread's alone.
#ifndef TF_RDMABATCH_CC_TRANSPORT_TCP_INPUT_H_
#define TF_RDMABATCH_CC_TRANSPORT_TCP_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tf_rdmabatch/cc/base/span.h"
#include "tf_rdmabatch/cc/transport/tcp/exports.h"
#include "tf_rdmabatch/cc/transport/tcp/link.h"
#include "tf_rdmabatch/cc/transport/tcp/output.h"
#include "tf_rdmabatch/cc/transport/tcp/send_queue.h"
#include "tf_rdmabatch/cc/transport/tcp/wire.h"

namespace rdmabatch::tcp {

// Small payloads are applied whole or not at all. A large one goes straight to its destination, and
// is announced once all of it is there.
class Input {
 public:
  Input(Link* link, SendQueue* queue, Output* output, const Exports* exports,
        const EndpointOptions& options);

  // Immediates that arrived, fewer than there are when `completions` is full. `readable`: the
  // socket has something. A fault of the peer or the end of the stream breaks the link.
  size_t Take(Span<Completion> completions, bool readable);

  // Nothing comes any more: the stream has ended, or a fault was found.
  bool ended() const { return ended_; }

 private:
  static constexpr size_t kStagingBytes = 64 << 10;
  // A payload up to this size is kept in staging until it is complete.
  static constexpr uint32_t kSmallBytes = 4 << 10;

  // Handles what is staged; returns how many immediates that were.
  size_t HandleStaged(Span<Completion> completions);
  void HandleBare(const Frame& frame);
  // Where the payload goes, null (and the peer refused) when it may not.
  uint8_t* Destination(const Frame& frame);
  void FinishPayload();
  // Bytes received. False: nothing more waits.
  bool Receive(size_t* received);
  bool DestinationAlive() const {
    return region_ == nullptr || region_->alive.load(std::memory_order_seq_cst);
  }
  void End(const Failure& failure);

  Link* const link_;
  SendQueue* const queue_;
  Output* const output_;
  const Exports* const exports_;
  Counters* const counters_;
  const uint64_t context_;
  const std::unique_ptr<uint8_t[]> staging_;
  size_t begin_ = 0;
  size_t end_ = 0;

  // A payload that is arriving: `left_` more bytes belong to `to_`, and staging is empty.
  bool in_payload_ = false;
  Frame frame_;
  uint8_t* to_ = nullptr;
  uint32_t left_ = 0;
  const Registration* region_ = nullptr;  // of to_; null for a read of ours
  uint32_t large_expected_ = 0;           // a large payload is, within so many
  bool replies_ = false;                  // there are new answers to send
  bool ended_ = false;
};

}  // namespace rdmabatch::tcp

#endif  // TF_RDMABATCH_CC_TRANSPORT_TCP_INPUT_H_
