// Segment: page-aligned memory that every transport can register and another process can map.
#ifndef TF_RDMABATCH_CC_MEMORY_SEGMENT_H_
#define TF_RDMABATCH_CC_MEMORY_SEGMENT_H_

#include <cstddef>
#include <cstdint>

#include "tf_rdmabatch/cc/base/export.h"
#include "tf_rdmabatch/cc/base/status.h"

namespace rdmabatch {

// An anonymous memory file (memfd) and this process's mapping of it. Nothing has a name in a file
// system, so a killed process leaves nothing behind. Movable; unmaps and closes on destruction.
// Pages are touched at creation, since registering untouched pages costs a hundred times more.
class RDMABATCH_EXPORT Segment {
 public:
  // `bytes` is rounded up to the page size; huge pages are tried when `huge_pages` and fall back to
  // plain ones. `touch` false leaves pages unallocated until first use. kResourceExhausted when
  // memory cannot be had.
  static Result<Segment> Create(size_t bytes, bool huge_pages = false, bool touch = true);

  // Maps `bytes` of a descriptor received from a peer. Takes ownership of `fd` and closes it in any
  // case: the mapping needs it no more. Refuses a file that is smaller than `bytes` or that could
  // shrink under the mapping (kDataLoss), and one that its owner does not let be written when
  // `writable` (kPermissionDenied).
  static Result<Segment> Map(int fd, size_t bytes, bool writable);

  Segment() = default;
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  // Forbids any further writable mapping (F_SEAL_FUTURE_WRITE): for regions that peers may only
  // read. Idempotent.
  Status SealAgainstWriters() const;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  // -1 for a segment that was mapped.
  int fd() const { return fd_; }

 private:
  Segment(uint8_t* data, size_t size, int fd) : data_(data), size_(size), fd_(fd) {}

  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  int fd_ = -1;
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_MEMORY_SEGMENT_H_
