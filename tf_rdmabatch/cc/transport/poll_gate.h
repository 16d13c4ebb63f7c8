// PollGate: lets a control thread wait until the progress thread has left what it is about to free.
#ifndef TF_RDMABATCH_CC_TRANSPORT_POLL_GATE_H_
#define TF_RDMABATCH_CC_TRANSPORT_POLL_GATE_H_

#include <sched.h>

#include <atomic>
#include <cstdint>

namespace rdmabatch {

// The progress thread holds an Inside while it uses pointers that it found in shared places
// (atomic, read with seq_cst). A control thread first clears the place (seq_cst) and then calls
// AwaitOutside: after that no use of the old pointer is left, because a poll that begins later
// finds the place empty. Both sides need one total order of "I am inside" and "the place is empty",
// hence seq_cst.
//
// No lock: entering costs one exchange. AwaitOutside ends as soon as the poll under way does, and
// at once when no thread polls.
class PollGate {
 public:
  class Inside {
   public:
    explicit Inside(PollGate* gate) : gate_(gate) {
      entered_ = gate_->epoch_.load(std::memory_order_relaxed) + 1;
      gate_->epoch_.store(entered_, std::memory_order_seq_cst);
    }
    ~Inside() { gate_->epoch_.store(entered_ + 1, std::memory_order_release); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    PollGate* gate_;
    uint64_t entered_;
  };

  void AwaitOutside() const {
    const uint64_t seen = epoch_.load(std::memory_order_seq_cst);
    if (seen % 2 == 0) return;
    while (epoch_.load(std::memory_order_acquire) == seen) sched_yield();
  }

 private:
  std::atomic<uint64_t> epoch_{0};  // odd while the progress thread is inside
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_TRANSPORT_POLL_GATE_H_
