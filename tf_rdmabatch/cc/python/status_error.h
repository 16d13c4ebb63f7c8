// StatusError: a Status on its way to Python, where tf_rdmabatch.errors has a class for each code.
//
// Bindings throw it; the translator that RegisterErrors installs turns it into that class.
#ifndef TF_RDMABATCH_CC_PYTHON_STATUS_ERROR_H_
#define TF_RDMABATCH_CC_PYTHON_STATUS_ERROR_H_

#include <exception>
#include <utility>

#include "tf_rdmabatch/cc/base/status.h"

namespace rdmabatch::python {

class StatusError : public std::exception {
 public:
  explicit StatusError(Status status) : status_(std::move(status)) {}

  const char* what() const noexcept override { return status_.message().c_str(); }
  const Status& status() const { return status_; }

 private:
  Status status_;
};

inline void Check(Status status) {
  if (!status.ok()) throw StatusError(std::move(status));
}

template <typename T>
T Take(Result<T> result) {
  Check(result.status());
  return std::move(result.value());
}

}  // namespace rdmabatch::python

#endif  // TF_RDMABATCH_CC_PYTHON_STATUS_ERROR_H_
