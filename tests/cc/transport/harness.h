// What the tests of every transport share: a connected pair within the process, and a peer in a
// process of its own.
#ifndef TF_RDMABATCH_TESTS_CC_TRANSPORT_HARNESS_H_
#define TF_RDMABATCH_TESTS_CC_TRANSPORT_HARNESS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "tf_rdmabatch/cc/base/unique_fd.h"
#include "tf_rdmabatch/cc/transport/registry.h"

namespace rdmabatch::testing {

constexpr double kPatience = 60;  // seconds before a wait counts as a hang, also where others run
constexpr uint64_t kArenaBytes = 1 << 20;

// A transport under test, and the device it is to use (empty: its own choice).
struct Subject {
  std::string transport;
  std::string device;
  bool tls = false;
};
std::ostream& operator<<(std::ostream& out, const Subject& subject);

inline std::string SubjectName(const ::testing::TestParamInfo<Subject>& info) {
  return ::testing::PrintToString(info.param);
}

// Every transport of the build, tcp also with TLS; verbs once for each device in
// TF_RDMABATCH_DEVICE (comma-separated).
std::vector<Subject> Subjects();

// A chain's work requests name memory by these.
struct Memory {
  Segment segment;
  LocalMemory local;
  RemoteMemory peers;  // the peer's memory of the same kind
};

// One endpoint with its memory. Destroying it closes the endpoint first and takes its memory back
// last.
struct Side {
  Side() = default;
  Side(Side&&) = default;
  ~Side();

  std::shared_ptr<Transport> transport;
  std::unique_ptr<Counters> counters = std::make_unique<Counters>();
  Memory arena;      // remotely writable
  Memory published;  // remotely readable
  Memory staging;    // local
  std::unique_ptr<Endpoint> endpoint;

  void Register(uint64_t bytes = kArenaBytes);
  // Descriptors of arena and published, for the peer's Import.
  std::vector<std::string> Export();
  void Import(const std::vector<std::string>& descriptors);

  WorkRequest Write(uint64_t staging_offset, uint64_t arena_offset, uint32_t length,
                    uint64_t id = 0) const;
  WorkRequest WriteImm(uint64_t staging_offset, uint64_t arena_offset, uint32_t length,
                       uint32_t immediate, uint64_t id = 0) const;
  WorkRequest Read(uint64_t staging_offset, uint64_t published_offset, uint32_t length,
                   uint64_t id = 0) const;

  // One poll of a progress thread, where the transport needs them (Transport::one_sided).
  void Poll();
  // Posts the whole chain, taking send completions when the queue is full. False: not before the
  // deadline.
  bool PostAll(Span<const WorkRequest> chain, Deadline deadline);
  // Waits for `count` send completions, or arrivals; fewer when a deadline expires or one is not
  // ok. `peer`, if given, polls meanwhile: it is to carry out reads.
  std::vector<Completion> TakeSends(size_t count, Deadline deadline, Side* peer = nullptr);
  std::vector<Completion> TakeArrivals(size_t count, Deadline deadline);

  std::vector<Completion> arrived;  // that Poll met
};

// Both sides within this process, each with a transport of its own.
struct Pair {
  Side a;  // connected
  Side b;  // accepted
};

// Null, and a failure of the test, when it cannot be made.
std::shared_ptr<Transport> NewTransport(const Subject& subject);
// Where this host is reached: 127.0.0.1, or for verbs the first address of a network device.
std::string LocalIp(const std::string& transport);

class TransportTest : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override;

  std::shared_ptr<Transport> NewTransport() { return testing::NewTransport(GetParam()); }
  EndpointOptions Options(uint64_t context = 1);
  // Connects a.transport to b.transport (made when null). Fails the test when that does not work.
  void Connect(Pair* pair, EndpointOptions a, EndpointOptions b);
  void Connect(Pair* pair) { Connect(pair, Options(1), Options(2)); }
  bool IsShm() const { return GetParam().transport == "shm"; }
};

// A process of its own that runs `body`, and exits with what it returns; strings pass both ways.
// Killed when it is destroyed.
class PeerProcess {
 public:
  class Link {
   public:
    explicit Link(UniqueFd fd) : fd_(std::move(fd)) {}
    bool Put(const std::string& bytes);
    bool Get(std::string* bytes);  // false at the end, and after kPatience
    int fd() const { return fd_.get(); }

   private:
    UniqueFd fd_;
  };

  // Forks: only before this process has started threads or opened an RDMA device.
  explicit PeerProcess(const std::function<int(Link&)>& body);
  // Runs this program anew, as the PeerRole of that name.
  PeerProcess(const std::string& role, const Subject& subject);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  Link& link() { return *link_; }
  void Kill();
  // Stopped, it lives and does nothing.
  bool Stop();
  bool Continue();
  int Wait();  // its exit status, or -1

 private:
  int pid_ = -1;
  std::unique_ptr<Link> link_;
};

// What a peer process does; defined as a global, found by name in the process that runs it.
class PeerRole {
 public:
  using Body = int (*)(PeerProcess::Link* link, const Subject& subject);
  PeerRole(const char* name, Body body);

  // Whether this process is to play a role; if so plays it and gives its exit status.
  static bool Play(int* status);
};

// One side of a pair across processes: the accepting one, then the other.
bool AcceptOver(PeerProcess::Link* link, const std::string& ip, const EndpointOptions& options,
                Side* side);
bool ConnectOver(PeerProcess::Link* link, const EndpointOptions& options, Side* side);

inline Deadline Patience() { return Deadline::After(kPatience); }
inline Span<const WorkRequest> Chain(const std::vector<WorkRequest>& requests) {
  return {requests.data(), requests.size()};
}

// Deterministic bytes that differ with the seed.
void Fill(uint8_t* data, size_t bytes, uint64_t seed);
bool Holds(const uint8_t* data, size_t bytes, uint64_t seed);

}  // namespace rdmabatch::testing

#endif  // TF_RDMABATCH_TESTS_CC_TRANSPORT_HARNESS_H_
