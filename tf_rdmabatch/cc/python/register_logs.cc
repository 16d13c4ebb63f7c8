// The engine's log for Python: its threads put records into a queue and never touch the
// interpreter; a Python thread takes them out (tf_rdmabatch/_logs.py).
#include <pybind11/stl.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tf_rdmabatch/cc/base/log.h"
#include "tf_rdmabatch/cc/python/register.h"

namespace py = pybind11;

namespace rdmabatch::python {
namespace {

using Record = std::pair<int, std::string>;

class LogQueue {
 public:
  static constexpr size_t kMostRecords = 1000;

  void Put(LogLevel level, const std::string& message) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (records_.size() == kMostRecords) {
      ++lost_;
      return;
    }
    records_.emplace_back(static_cast<int>(level), message);
    arrived_.notify_one();
  }

  // Waits for records; an empty list means that the queue was closed.
  std::vector<Record> Take() {
    std::unique_lock<std::mutex> lock(mutex_);
    arrived_.wait(lock, [this] { return !open_ || !records_.empty(); });
    std::vector<Record> taken(std::make_move_iterator(records_.begin()),
                              std::make_move_iterator(records_.end()));
    records_.clear();
    if (lost_ > 0) {
      taken.emplace_back(static_cast<int>(LogLevel::kWarning),
                         std::to_string(lost_) + " log records were lost");
      lost_ = 0;
    }
    return taken;
  }

  void Close() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = false;
    arrived_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Record> records_;
  uint64_t lost_ = 0;
  bool open_ = true;
};

// A new one for each opening, used with the GIL held. A forked process never destroys its copy: to
// that, its condition variable has a waiter for ever.
std::shared_ptr<LogQueue>& Current() {
  static auto* current = new std::shared_ptr<LogQueue>;
  return *current;
}

void Open() {
  auto queue = std::shared_ptr<LogQueue>(new LogQueue, [process = getpid()](LogQueue* old) {
    if (process == getpid()) delete old;
  });
  Current() = queue;
  SetLogSink([queue](LogLevel level, const std::string& message) { queue->Put(level, message); });
}

void Close() {
  SetLogSink({});
  Current()->Close();
}

std::vector<Record> Take() {
  const std::shared_ptr<LogQueue> queue = Current();
  py::gil_scoped_release unlocked;
  return queue->Take();
}

}  // namespace

void RegisterLogs(py::module_& module) {
  module.def("open_log", &Open);
  module.def("close_log", &Close);
  module.def("take_log", &Take);
}

}  // namespace rdmabatch::python
