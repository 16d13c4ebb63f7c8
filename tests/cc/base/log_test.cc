#include "tf_rdmabatch/cc/base/log.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace rdmabatch {
namespace {

TEST(LogTest, TheSinkGetsWhatIsLogged) {
  std::string got;
  SetLogSink([&](LogLevel, const std::string& message) { got = message; });
  Log(LogLevel::kInfo, "hello");
  SetLogSink({});
  Log(LogLevel::kInfo, "nobody listens");
  EXPECT_EQ(got, "hello");
}

// The thread that held the lock does not exist in the child, which would wait for it for ever.
TEST(LogTest, AForkFindsItUnlocked) {
  std::atomic<bool> stop{false};
  SetLogSink([](LogLevel, const std::string&) {});
  std::thread logging([&] {
    while (!stop.load(std::memory_order_relaxed)) Log(LogLevel::kInfo, "busy");
  });
  int failures = 0;
  for (int i = 0; i < 200; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(5);  // its signal is the failure
      SetLogSink({});
      _exit(0);
    }
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) ++failures;
    if (failures > 0) break;
  }
  stop = true;
  logging.join();
  SetLogSink({});
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace rdmabatch
