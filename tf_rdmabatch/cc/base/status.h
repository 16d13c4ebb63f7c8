// Status and Result: what set-up code and the data path return instead of throwing.
//
// An OK status holds no message and allocates nothing. Both types are values; they are as
// thread-safe as std::string.
#ifndef TF_RDMABATCH_CC_BASE_STATUS_H_
#define TF_RDMABATCH_CC_BASE_STATUS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

namespace rdmabatch {

enum class StatusCode : uint8_t {
  kOk,
  kInvalidArgument,     // the call is wrong whatever the state
  kFailedPrecondition,  // the call is wrong in this state (closed, forked, not served)
  kNotFound,
  kAlreadyExists,
  kOutOfRange,
  kPermissionDenied,   // token refused, memlock limit
  kResourceExhausted,  // no slot, no credit, no memory: try again later
  kDeadlineExceeded,
  kUnavailable,  // the peer or the device is gone
  kCancelled,
  kDataLoss,  // bytes from a peer that do not parse
  kUnimplemented,
  kInternal,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status Ok() { return {}; }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

// A value or the reason why there is none. `value()` may only be called when `ok()`.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : state_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return std::holds_alternative<T>(state_); }
  Status status() const { return ok() ? Status() : std::get<Status>(state_); }
  T& value() { return std::get<T>(state_); }
  const T& value() const { return std::get<T>(state_); }
  T& operator*() { return value(); }
  T* operator->() { return &value(); }

 private:
  std::variant<Status, T> state_;
};

#define RDMABATCH_RETURN_IF_ERROR(expression)            \
  do {                                                   \
    ::rdmabatch::Status rdmabatch_status = (expression); \
    if (!rdmabatch_status.ok()) return rdmabatch_status; \
  } while (false)

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_BASE_STATUS_H_
