// What the programs share that speak to a device by themselves: no engine, no event, one thread a
// process, polling.
#ifndef TF_RDMABATCH_TESTS_CC_TOOLS_BARE_VERBS_H_
#define TF_RDMABATCH_TESTS_CC_TOOLS_BARE_VERBS_H_

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace bare {

inline constexpr char kPort[] = "19471";

struct Target {
  uint64_t address;
  uint32_t key;
};

inline void Check(bool ok, const char* what) {
  if (ok) return;
  std::perror(what);
  std::exit(1);
}

inline void* NewMemory(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  Check(memory != MAP_FAILED, "mmap");
  return memory;
}

inline rdma_cm_id* NewEndpoint(const char* ip, int flags, const ibv_qp_cap& cap) {
  rdma_addrinfo hints{};
  hints.ai_flags = flags;
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* address = nullptr;
  Check(rdma_getaddrinfo(ip, kPort, &hints, &address) == 0, "rdma_getaddrinfo");
  ibv_qp_init_attr attributes{};
  attributes.cap = cap;
  attributes.qp_type = IBV_QPT_RC;
  rdma_cm_id* id = nullptr;
  Check(rdma_create_ep(&id, address, nullptr, &attributes) == 0, "rdma_create_ep");
  rdma_freeaddrinfo(address);
  return id;
}

// Runs `serve` on a listener in a process of its own and `work` here, and returns once `work` has.
// Forked before the devices are opened, so that each process has them for itself.
template <typename ServeFn, typename WorkFn>
int RunBoth(const char* ip, const ibv_qp_cap& cap, ServeFn serve, WorkFn work) {
  int ready[2];
  Check(pipe(ready) == 0, "pipe");
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    rdma_cm_id* listener = NewEndpoint(ip, RAI_PASSIVE, cap);
    Check(rdma_listen(listener, 1) == 0, "rdma_listen");
    Check(write(ready[1], "", 1) == 1, "write");
    serve(listener);
  }
  close(ready[1]);
  char byte;
  if (read(ready[0], &byte, 1) != 1) return 1;
  work(NewEndpoint(ip, 0, cap));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return 0;
}

class Clock {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace bare

#endif  // TF_RDMABATCH_TESTS_CC_TOOLS_BARE_VERBS_H_
