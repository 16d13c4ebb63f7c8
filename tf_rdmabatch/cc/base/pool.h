// Pool: objects that are used again, where making one costs more than using it.
#ifndef TF_RDMABATCH_CC_BASE_POOL_H_
#define TF_RDMABATCH_CC_BASE_POOL_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace rdmabatch {

// Thread-safe. Shared, since what was taken keeps it.
template <typename T>
class Pool : public std::enable_shared_from_this<Pool<T>> {
 public:
  // Null when none can be made.
  using Make = std::function<std::unique_ptr<T>()>;

  // Keeps up to `keep` objects that nobody uses.
  static std::shared_ptr<Pool> Create(size_t keep, Make make) {
    return std::shared_ptr<Pool>(new Pool(keep, std::move(make)));
  }

  // One that was used before, or a new one; it comes back with the last pointer. Null when there is
  // none.
  std::shared_ptr<T> Take() {
    std::unique_ptr<T> object;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!spare_.empty()) {
        object = std::move(spare_.back());
        spare_.pop_back();
      }
    }
    if (object == nullptr) object = make_();
    if (object == nullptr) return nullptr;
    return {object.release(), [self = this->shared_from_this()](T* used) {
              self->GiveBack(std::unique_ptr<T>(used));
            }};
  }

 private:
  Pool(size_t keep, Make make) : keep_(keep), make_(std::move(make)) {}

  void GiveBack(std::unique_ptr<T> object) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (spare_.size() < keep_) spare_.push_back(std::move(object));
  }

  const size_t keep_;
  const Make make_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> spare_;  // mutex_
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_BASE_POOL_H_
