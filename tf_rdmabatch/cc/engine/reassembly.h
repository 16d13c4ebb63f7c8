// Reassembly: puts messages together that are larger than a slot. Progress thread.
#ifndef TF_RDMABATCH_CC_ENGINE_REASSEMBLY_H_
#define TF_RDMABATCH_CC_ENGINE_REASSEMBLY_H_

#include <cstdint>
#include <map>
#include <memory>

#include "tf_rdmabatch/cc/base/free_memory.h"
#include "tf_rdmabatch/cc/base/span.h"

namespace rdmabatch {

class Reassembly {
 public:
  struct Whole {
    std::unique_ptr<uint8_t[], FreeMemory> bytes;  // null: more is to come
    uint64_t size = 0;
    uint64_t room = 0;  // at `bytes`
  };

  // `window_bytes` and `window_slots` are what the peer may have on its way. It sends one large
  // message after the other, so that only so many can be incomplete at a time.
  void SetLimits(uint64_t max_message_bytes, uint64_t window_bytes, uint64_t window_slots) {
    max_message_bytes_ = max_message_bytes;
    most_bytes_ = 2 * max_message_bytes + window_bytes;
    most_messages_ = window_slots + 1;
  }

  // Takes a fragment, which comes from a peer, and returns the message that it completes. False:
  // it does not fit, or there is no memory for it.
  bool Take(Span<const uint8_t> fragment, Whole* whole);

  // The memory of a message that nobody needs any more serves the next one, unless it is much.
  void Reuse(Whole whole);

 private:
  static constexpr uint64_t kSpareBytes = 4 << 20;

  struct Incomplete {
    Whole message;
    uint64_t have = 0;
    bool zeroed = false;  // what lies behind the pieces that came in order
  };

  Incomplete Begin(uint64_t size);

  uint64_t max_message_bytes_ = 0;
  uint64_t most_bytes_ = 0;
  uint64_t most_messages_ = 0;
  uint64_t bytes_ = 0;  // of all that are incomplete
  std::map<uint64_t, Incomplete> incomplete_;
  Whole spare_;
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_REASSEMBLY_H_
