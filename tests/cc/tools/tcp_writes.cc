// tcp_writes [SECONDS] [STREAMS]: one-sided writes of 1 MiB over the tcp transport on loopback, to
// set beside bare_tcp: what they carry, and the CPU time of both sides. The peer does nothing but
// poll. STREAMS connections (default 1) take writes in turn.
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/cc/tools/need.h"
#include "tests/cc/tools/writes.h"
#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/transport/registry.h"

namespace rdmabatch {
namespace {

constexpr uint32_t kBytes = 1 << 20;
constexpr uint32_t kPlaces = 8;
constexpr double kPatience = 10;

struct Side {
  explicit Side(Access access) {
    transport = Need(FindTransport("tcp")->create({}), "create");
    segment = Need(Segment::Create(uint64_t{kBytes} * kPlaces), "memory");
    memory = Need(transport->RegisterMemory(segment, access), "register");
    options.counters = &counters;
  }
  ~Side() {
    endpoints.clear();
    transport->Deregister(memory);
  }

  // As an engine does that has nothing else: it sleeps when nothing came for a while.
  bool Poll(Span<Completion> completions, int* idle) const {
    const size_t n = transport->PollReceive(completions);
    if (n != 0 || ++*idle < 64) return n == 0 || completions[0].ok;
    *idle = 0;
    pollfd event{transport->event_fd(), POLLIN, 0};
    (void)poll(&event, 1, 1000);
    return true;
  }

  Counters counters;
  EndpointOptions options;
  std::unique_ptr<Transport> transport;
  Segment segment;
  LocalMemory memory;
  std::vector<std::unique_ptr<Endpoint>> endpoints;
};

[[noreturn]] void Receive(int channel, int streams) {
  {
    Side side(Access::kRemoteWrite);
    for (int i = 0; i < streams; ++i) {
      auto acceptor = Need(side.transport->Listen("127.0.0.1"), "listen");
      bench::Say(channel, acceptor->offer());
      side.endpoints.push_back(
          Need(acceptor->Accept(side.options, Deadline::After(kPatience)), "accept"));
      bench::Say(channel, Need(side.endpoints.back()->Export(side.memory), "export"));
    }
    Completion end;
    int idle = 0;
    // The end of a connection is a completion that is not ok.
    while (side.Poll({&end, 1}, &idle)) continue;
  }
  _exit(0);
}

uint64_t Write(Side* side, const std::vector<RemoteMemory>& remote, double seconds) {
  uint64_t completed = 0;
  uint32_t posted = 0;
  int idle = 0;
  const Deadline end = Deadline::After(seconds);
  while (!end.expired()) {
    bool busy = false;
    for (size_t i = 0; i < side->endpoints.size(); ++i) {
      Endpoint& endpoint = *side->endpoints[i];
      Completion done[16];
      const size_t n = endpoint.PollSend(done);
      if (n != 0 && !done[n - 1].ok) return 0;
      completed += n;
      if (endpoint.chains_in_flight() >= kPlaces) continue;
      WorkRequest request;
      request.op = OpCode::kWrite;
      request.length = kBytes;
      request.local = side->memory.address + uint64_t{posted % kPlaces} * kBytes;
      request.local_key = side->memory.local_key;
      request.remote = remote[i].address + uint64_t{posted % kPlaces} * kBytes;
      request.remote_key = remote[i].key;
      posted += static_cast<uint32_t>(endpoint.Post({&request, 1}));
      busy = true;
    }
    Completion none;
    if (!busy && !side->Poll({&none, 1}, &idle)) return 0;
  }
  return completed * kBytes;
}

int Main(double seconds, int streams) {
  bench::Meter meter;
  bench::Peer peer([streams](int channel) { Receive(channel, streams); });
  uint64_t bytes = 0;
  {
    Side side(Access::kLocal);
    std::vector<RemoteMemory> remote;
    for (int i = 0; i < streams; ++i) {
      side.endpoints.push_back(
          Need(side.transport->Connect(bench::Hear(peer.channel()), side.options,
                                       Deadline::After(kPatience)),
               "connect"));
      remote.push_back(Need(side.endpoints.back()->Import(bench::Hear(peer.channel())), "import"));
    }
    meter.Start();
    bytes = Write(&side, remote, seconds);
    meter.Stop();
  }
  peer.Wait();
  return meter.Print("tcp transport", bytes);
}

}  // namespace
}  // namespace rdmabatch

int main(int argc, char** argv) {
  return rdmabatch::Main(argc > 1 ? std::atof(argv[1]) : 2, argc > 2 ? std::atoi(argv[2]) : 1);
}
