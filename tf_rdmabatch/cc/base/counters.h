// Counters of the engine: what batching saves is counted where it happens.
#ifndef TF_RDMABATCH_CC_BASE_COUNTERS_H_
#define TF_RDMABATCH_CC_BASE_COUNTERS_H_

#include <atomic>
#include <cstdint>

namespace rdmabatch {

// One writer at a time (whoever owns the side that counts), any number of readers. Never reset in
// place: a reader subtracts a snapshot, so no write is lost.
class Counter {
 public:
  void Add(uint64_t n) {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  // For the few counters that both sides of an endpoint count; not to be mixed with Add.
  void AddShared(uint64_t n) { value_.fetch_add(n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// RDMABATCH_COUNTERS(X) lists every counter once: X(name, meaning).
#define RDMABATCH_COUNTERS(X)                                                                     \
  X(doorbells, "chains handed to the device, one call each")                                      \
  X(work_requests, "work requests in those chains")                                               \
  X(send_completions, "completions of own chains perceived")                                      \
  X(receive_completions, "arrivals perceived (receive completions; immediates on shared memory)") \
  X(acks, "acknowledgements written: freed bitmap words, or single acks when confirming each")    \
  X(messages_sent, "messages handed to a lane")                                                   \
  X(messages_received, "messages delivered")                                                      \
  X(bytes_sent, "payload bytes of messages sent")                                                 \
  X(bytes_received, "payload bytes of messages delivered")                                        \
  X(bytes_read, "bytes of one-sided reads")                                                       \
  X(bytes_written, "bytes of one-sided writes")                                                   \
  X(batches_sent, "announcements: bitmap words written with immediate")                           \
  X(slots_sent, "slots filled; messages_sent over this is the packing")                           \
  X(copies, "memory copies and sums of payload made by this process")                             \
  X(bytes_copied, "bytes of those copies")                                                        \
  X(in_place, "versions published in place, without a copy")                                      \
  X(views, "versions handed out without a copy")                                                  \
  X(bytes_viewed, "bytes of those versions")                                                      \
  X(wakeups_sent, "times a sleeping peer was woken")                                              \
  X(wakeups, "times this engine's progress thread was woken")                                     \
  X(slot_stalls, "sends that found no free slot")                                                 \
  X(queue_stalls, "posts that found the send queue full")                                         \
  X(send_calls, "system calls that sent (tcp)")                                                   \
  X(receive_calls, "system calls that received (tcp)")                                            \
  X(refused, "messages, connections and steps refused")

// Plain values, a snapshot.
struct CounterValues {
#define RDMABATCH_X(name, meaning) uint64_t name = 0;
  RDMABATCH_COUNTERS(RDMABATCH_X)
#undef RDMABATCH_X

  CounterValues& operator+=(const CounterValues& other) {
#define RDMABATCH_X(name, meaning) name += other.name;
    RDMABATCH_COUNTERS(RDMABATCH_X)
#undef RDMABATCH_X
    return *this;
  }
  CounterValues& operator-=(const CounterValues& other) {
#define RDMABATCH_X(name, meaning) name -= other.name;
    RDMABATCH_COUNTERS(RDMABATCH_X)
#undef RDMABATCH_X
    return *this;
  }
};

struct Counters {
#define RDMABATCH_X(name, meaning) Counter name;
  RDMABATCH_COUNTERS(RDMABATCH_X)
#undef RDMABATCH_X

  CounterValues values() const {
    CounterValues v;
#define RDMABATCH_X(name, meaning) v.name = name.value();
    RDMABATCH_COUNTERS(RDMABATCH_X)
#undef RDMABATCH_X
    return v;
  }
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_BASE_COUNTERS_H_
