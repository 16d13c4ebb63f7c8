// Exports: the regions of this side that a peer may reach, as one endpoint exported them.
#ifndef TF_RDMABATCH_CC_TRANSPORT_TCP_EXPORTS_H_
#define TF_RDMABATCH_CC_TRANSPORT_TCP_EXPORTS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/transport/tcp/wire.h"
#include "tf_rdmabatch/cc/transport/transport.h"

namespace rdmabatch::tcp {

// Memory registered with the transport. Once `alive` is false and the progress threads and senders
// were waited for (PollSet::AwaitQuiet), nobody touches the memory any more.
struct Registration {
  uint8_t* address = nullptr;
  uint64_t bytes = 0;
  Access access = Access::kLocal;
  std::atomic<bool> alive{true};
};

class Exports {
 public:
  // Control path; thread-safe. kResourceExhausted when there are kMaxRegions.
  Result<Region> Add(std::shared_ptr<Registration> registration);

  // The memory of `length` bytes at `offset` of a region, or null unless all of it may be reached
  // for `op` and was not given up. Any thread; valid as long as PollSet::AwaitQuiet would wait.
  const Registration* Find(uint32_t id, uint64_t offset, uint32_t length, OpCode op) const;

 private:
  static constexpr uint32_t kIndexBits = 10;
  static_assert(kMaxRegions == 1u << kIndexBits);

  std::mutex mutex_;
  // Of two endpoints differ, so that a descriptor that was meant for another one is refused.
  uint32_t tag_ = 0;
  std::atomic<uint32_t> count_{0};
  const std::unique_ptr<std::shared_ptr<Registration>[]> entries_ {
    new std::shared_ptr<Registration>[ kMaxRegions ]
  };
};

}  // namespace rdmabatch::tcp

#endif  // TF_RDMABATCH_CC_TRANSPORT_TCP_EXPORTS_H_
