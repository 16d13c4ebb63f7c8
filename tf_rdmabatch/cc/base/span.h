// Span: a view of contiguous elements that it does not own (std::span arrives with C++20).
#ifndef TF_RDMABATCH_CC_BASE_SPAN_H_
#define TF_RDMABATCH_CC_BASE_SPAN_H_

#include <cstddef>

namespace rdmabatch {

template <typename T>
class Span {
 public:
  Span() = default;
  Span(T* data, size_t size) : data_(data), size_(size) {}
  template <size_t N>
  Span(T (&array)[N]) : data_(array), size_(N) {}  // NOLINT(google-explicit-constructor)
  template <typename Container,
            typename = decltype(static_cast<T*>(static_cast<Container*>(nullptr)->data()))>
  Span(Container& container)  // NOLINT(google-explicit-constructor)
      : data_(container.data()), size_(container.size()) {}

  T* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) const { return data_[i]; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size_; }
  Span subspan(size_t offset) const { return {data_ + offset, size_ - offset}; }
  Span first(size_t count) const { return {data_, count}; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_BASE_SPAN_H_
