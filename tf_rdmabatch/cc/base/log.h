// Logging: one sink a process, stderr unless the host program sets its own (the Python binding
// routes it to `logging`).
#ifndef TF_RDMABATCH_CC_BASE_LOG_H_
#define TF_RDMABATCH_CC_BASE_LOG_H_

#include <functional>
#include <string>

#include "tf_rdmabatch/cc/base/export.h"

namespace rdmabatch {

enum class LogLevel { kDebug = 10, kInfo = 20, kWarning = 30, kError = 40 };

using LogSink = std::function<void(LogLevel, const std::string&)>;

// Replaces the sink; an empty one restores stderr (warnings and errors only). Thread-safe.
RDMABATCH_EXPORT void SetLogSink(LogSink sink);

// Never throws and never blocks on anything but the sink. Not for the data path.
RDMABATCH_EXPORT void Log(LogLevel level, const std::string& message) noexcept;

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_BASE_LOG_H_
