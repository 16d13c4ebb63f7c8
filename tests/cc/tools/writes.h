// What the programs share that measure what two processes carry: CPU time; and for one-sided writes
// a peer process with a channel for a few strings, and the meter.
#ifndef TF_RDMABATCH_TESTS_CC_TOOLS_WRITES_H_
#define TF_RDMABATCH_TESTS_CC_TOOLS_WRITES_H_

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace rdmabatch::bench {

inline void Check(bool ok, const char* what) {
  if (ok) return;
  std::perror(what);
  std::exit(1);
}

// RUSAGE_SELF's, or that of the children that have ended.
inline double CpuSeconds(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// One packet of a seqpacket channel.
inline void Say(int channel, const std::string& bytes) {
  Check(send(channel, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()), "send");
}
inline std::string Hear(int channel) {
  char bytes[1024];
  const ssize_t n = recv(channel, bytes, sizeof(bytes), 0);
  Check(n > 0, "the peer said nothing");
  return {bytes, static_cast<size_t>(n)};
}

// A child process that runs `body(channel)`, which does not return.
class Peer {
 public:
  template <typename Body>
  explicit Peer(const Body& body) {
    int channels[2];
    Check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channels) == 0, "socketpair");
    child_ = fork();
    Check(child_ >= 0, "fork");
    if (child_ == 0) {
      close(channels[0]);
      body(channels[1]);
    }
    close(channels[1]);
    channel_ = channels[0];
  }
  int channel() const { return channel_; }
  // For its end, after which its CPU time is known.
  void Wait() const { Check(waitpid(child_, nullptr, 0) == child_, "waitpid"); }

 private:
  pid_t child_ = 0;
  int channel_ = -1;
};

// CPU time of both sides over a measurement, the peer's as a whole.
class Meter {
 public:
  void Start() {
    cpu_ = CpuSeconds(RUSAGE_SELF);
    start_ = std::chrono::steady_clock::now();
  }
  void Stop() {
    elapsed_ = std::chrono::steady_clock::now() - start_;
    cpu_ = CpuSeconds(RUSAGE_SELF) - cpu_;
  }
  // After the peer's end. The program's exit status.
  int Print(const char* name, uint64_t bytes) const {
    const double gb = static_cast<double>(bytes) / 1e9;
    if (bytes == 0) {
      std::fprintf(stderr, "%s: nothing was carried\n", name);
      return 1;
    }
    std::printf("%s, writes of 1 MiB: %6.3f GB/s  %6.3f CPU s/GB\n", name, gb / elapsed_.count(),
                (cpu_ + CpuSeconds(RUSAGE_CHILDREN)) / gb);
    return 0;
  }

 private:
  double cpu_ = 0;
  std::chrono::steady_clock::time_point start_;
  std::chrono::duration<double> elapsed_{};
};

}  // namespace rdmabatch::bench

#endif  // TF_RDMABATCH_TESTS_CC_TOOLS_WRITES_H_
