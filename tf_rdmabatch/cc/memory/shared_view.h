// SharedView: a mapping of shared memory that can stop being shared while it is read.
#ifndef TF_RDMABATCH_CC_MEMORY_SHARED_VIEW_H_
#define TF_RDMABATCH_CC_MEMORY_SHARED_VIEW_H_

#include <cstdint>
#include <memory>

#include "tf_rdmabatch/cc/base/export.h"
#include "tf_rdmabatch/cc/base/status.h"

namespace rdmabatch {

class RDMABATCH_EXPORT SharedView {
 public:
  // Maps the pages of `shared`, page-aligned and itself a shared mapping, a second time. The view
  // stays when that mapping goes.
  static Result<std::shared_ptr<SharedView>> Of(const uint8_t* shared, uint64_t bytes);
  ~SharedView();
  SharedView(const SharedView&) = delete;
  SharedView& operator=(const SharedView&) = delete;

  const uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

  // Puts a copy of the pages in their place: what others write to them is not seen here from then
  // on. Readers in other threads notice nothing.
  Status Detach();

 private:
  SharedView(uint8_t* data, uint64_t bytes, uint64_t mapped)
      : data_(data), bytes_(bytes), mapped_(mapped) {}

  uint8_t* const data_;
  const uint64_t bytes_;
  const uint64_t mapped_;  // whole pages
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_MEMORY_SHARED_VIEW_H_
