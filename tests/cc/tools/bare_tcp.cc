// bare_tcp [SECONDS]: what sockets on loopback give to a plain program, with one thread a side: the
// baseline of the tcp transport. Prints a line a case: messages of 64 bytes, one and 32 in a
// writev, of 4 KiB one a writev, and writes of 1 MiB that nobody waits for, with the CPU time of
// both sides.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/cc/tools/writes.h"

namespace {

using rdmabatch::bench::Check;
using rdmabatch::bench::CpuSeconds;

struct Case {
  uint32_t bytes;
  int at_once;
};

int ConnectTo(const sockaddr_in& address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  Check(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0, "connect");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

// Takes everything until the end.
[[noreturn]] void Receive(int listener, uint32_t bytes) {
  const int fd = accept(listener, nullptr, nullptr);
  std::vector<char> buffer(bytes > (256u << 10) ? bytes : 256u << 10);
  while (recv(fd, buffer.data(), buffer.size(), 0) > 0) continue;
  _exit(0);
}

void Measure(const Case& c, double seconds) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  Check(bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0, "bind");
  Check(listen(listener, 1) == 0, "listen");
  Check(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0, "getsockname");
  const pid_t child = fork();
  Check(child >= 0, "fork");
  if (child == 0) Receive(listener, c.bytes);

  const int fd = ConnectTo(address);
  std::vector<char> message(c.bytes, 1);
  std::vector<iovec> chain(static_cast<size_t>(c.at_once), iovec{message.data(), c.bytes});
  const double children = CpuSeconds(RUSAGE_CHILDREN);
  const double mine = CpuSeconds(RUSAGE_SELF);
  const auto start = std::chrono::steady_clock::now();
  uint64_t sent = 0;
  double elapsed = 0;
  while (elapsed < seconds) {
    for (int i = 0; i < 64; ++i) {
      const ssize_t n = writev(fd, chain.data(), c.at_once);
      Check(n > 0, "writev");
      sent += static_cast<uint64_t>(n);
    }
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    elapsed = passed.count();
  }
  close(fd);
  close(listener);
  Check(waitpid(child, nullptr, 0) == child, "waitpid");
  const double cpu = CpuSeconds(RUSAGE_SELF) - mine + CpuSeconds(RUSAGE_CHILDREN) - children;
  const auto total = static_cast<double>(sent);
  std::printf("%8u bytes, %2d a call: %9.0f messages/s  %6.3f GB/s  %6.3f CPU s/GB\n", c.bytes,
              c.at_once, total / c.bytes / elapsed, total / elapsed / 1e9, cpu / total * 1e9);
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
  for (const Case& c : {Case{64, 1}, Case{64, 32}, Case{4096, 1}, Case{1 << 20, 1}}) {
    Measure(c, seconds);
  }
  return 0;
}
