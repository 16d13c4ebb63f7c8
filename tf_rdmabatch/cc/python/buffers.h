// Buffers of Python objects, held for as long as the engine uses them.
#ifndef TF_RDMABATCH_CC_PYTHON_BUFFERS_H_
#define TF_RDMABATCH_CC_PYTHON_BUFFERS_H_

#include <pybind11/pybind11.h>

#include <cstdint>

#include "tf_rdmabatch/cc/base/span.h"

namespace rdmabatch::python {

// The contiguous bytes of an object. Made and destroyed with the GIL held; usable without it.
class ContiguousBytes {
 public:
  explicit ContiguousBytes(const pybind11::handle& object, bool writable = false) {
    if (PyObject_GetBuffer(object.ptr(), &view_, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0) {
      throw pybind11::error_already_set();
    }
  }
  ~ContiguousBytes() { PyBuffer_Release(&view_); }
  ContiguousBytes(const ContiguousBytes&) = delete;
  ContiguousBytes& operator=(const ContiguousBytes&) = delete;

  uint8_t* data() const { return static_cast<uint8_t*>(view_.buf); }
  size_t size() const { return static_cast<size_t>(view_.len); }
  Span<const uint8_t> span() const { return {data(), size()}; }

 private:
  Py_buffer view_{};
};

}  // namespace rdmabatch::python

#endif  // TF_RDMABATCH_CC_PYTHON_BUFFERS_H_
