#include "tf_rdmabatch/cc/memory/shared_view.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "tf_rdmabatch/cc/base/bits.h"

namespace rdmabatch {
namespace {

constexpr uint64_t kPage = 4096;

Status NoMapping(const char* what) {
  return {StatusCode::kResourceExhausted, std::string(what) + ": " + std::strerror(errno)};
}

}  // namespace

Result<std::shared_ptr<SharedView>> SharedView::Of(const uint8_t* shared, uint64_t bytes) {
  if (bytes == 0 || reinterpret_cast<uintptr_t>(shared) % kPage != 0) {
    return Status(StatusCode::kInvalidArgument, "a view needs whole pages");
  }
  const uint64_t mapped = AlignUp(bytes, kPage);
  // An old size of 0 leaves a shared mapping as it is and makes another of the same pages
  // (mremap(2)).
  void* data = mremap(const_cast<uint8_t*>(shared), 0, mapped, MREMAP_MAYMOVE);
  if (data == MAP_FAILED) return NoMapping("mapping shared memory again");
  return std::shared_ptr<SharedView>(new SharedView(static_cast<uint8_t*>(data), bytes, mapped));
}

SharedView::~SharedView() { munmap(data_, mapped_); }

Status SharedView::Detach() {
  void* copy = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) return NoMapping("memory for a view that is still in use");
  std::memcpy(copy, data_, mapped_);
  // Moving pages onto others is one step for whoever reads them.
  if (mremap(copy, mapped_, mapped_, MREMAP_MAYMOVE | MREMAP_FIXED, data_) == MAP_FAILED) {
    Status status = NoMapping("memory for a view that is still in use");
    munmap(copy, mapped_);
    return status;
  }
  return Status::Ok();
}

}  // namespace rdmabatch
