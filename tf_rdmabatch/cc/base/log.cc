#include "tf_rdmabatch/cc/base/log.h"

#include <pthread.h>

#include <cstdio>
#include <mutex>
#include <utility>

namespace rdmabatch {
namespace {

struct SinkHolder {
  std::mutex mutex;
  LogSink sink;
};

// Never destroyed: threads of an engine may log while the process ends. A fork waits for the lock,
// which would stay locked for ever in the child.
SinkHolder& Holder() {
  static auto* holder = [] {
    pthread_atfork([] { Holder().mutex.lock(); }, [] { Holder().mutex.unlock(); },
                   [] { Holder().mutex.unlock(); });
    return new SinkHolder;
  }();
  return *holder;
}

}  // namespace

void SetLogSink(LogSink sink) {
  std::lock_guard<std::mutex> lock(Holder().mutex);
  Holder().sink = std::move(sink);
}

void Log(LogLevel level, const std::string& message) noexcept {
  try {
    LogSink sink;
    {
      std::lock_guard<std::mutex> lock(Holder().mutex);
      sink = Holder().sink;
    }
    if (sink) {
      sink(level, message);
    } else if (level >= LogLevel::kWarning) {
      std::fprintf(stderr, "rdmabatch: %s\n", message.c_str());
    }
  } catch (...) {
    std::fputs("rdmabatch: a log sink threw\n", stderr);
  }
}

}  // namespace rdmabatch
