#include "tests/cc/watchdog.h"

#include <dirent.h>
#include <execinfo.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace rdmabatch::testing {
namespace {

void PrintStack(int) {
  void* frames[64];
  dprintf(STDERR_FILENO, "thread %ld:\n", syscall(SYS_gettid));
  backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
}

// Not all of it may be called from a signal handler, strictly; the process ends here in any case.
void GiveUp(int) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  dprintf(STDERR_FILENO, "%s.%s does not end. Its threads:\n",
          test == nullptr ? "?" : test->test_suite_name(), test == nullptr ? "?" : test->name());
  alarm(10);
  signal(SIGALRM, [](int) { _exit(1); });
  if (DIR* tasks = opendir("/proc/self/task")) {
    while (const dirent* task = readdir(tasks)) {
      const int thread = std::atoi(task->d_name);
      if (thread == 0) continue;
      syscall(SYS_tgkill, getpid(), thread, SIGUSR2);
      usleep(100000);  // one after the other, to be read
    }
  }
  _exit(1);
}

class Watchdog : public ::testing::EmptyTestEventListener {
 public:
  explicit Watchdog(unsigned seconds) : seconds_(seconds) {}
  void OnTestStart(const ::testing::TestInfo&) override { alarm(seconds_); }
  void OnTestEnd(const ::testing::TestInfo&) override { alarm(0); }

 private:
  const unsigned seconds_;
};

}  // namespace

void WatchTests(unsigned seconds) {
  void* frame;
  backtrace(&frame, 1);  // loads what it needs now, not in a handler
  signal(SIGUSR2, PrintStack);
  signal(SIGALRM, GiveUp);
  ::testing::UnitTest::GetInstance()->listeners().Append(new Watchdog(seconds));
}

}  // namespace rdmabatch::testing
