// The interface of a transport: what a device (or shared memory) does for the engine. One virtual
// call a batch.
//
// Control path (Probe ... Connect, Accept, Export, Import): may block up to its deadline,
// thread-safe, reports Status. Data path (Post, PollSend, PollReceive, PrepareSleep, FinishSleep):
// never blocks, allocates or throws.
//
// Threads on the data path. The *send side* of an endpoint (Post, PollSend, WantSendEvents) is used
// by one thread at a time, which the engine ensures. The *receive side* of a transport
// (PollReceive, PrepareSleep, FinishSleep) belongs to the engine's progress thread alone. The two
// sides may run at the same time.
#ifndef TF_RDMABATCH_CC_TRANSPORT_TRANSPORT_H_
#define TF_RDMABATCH_CC_TRANSPORT_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/counters.h"
#include "tf_rdmabatch/cc/base/export.h"
#include "tf_rdmabatch/cc/base/listen.h"
#include "tf_rdmabatch/cc/base/span.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/memory/segment.h"

namespace rdmabatch {

enum class OpCode : uint8_t {
  kWrite,     // local -> remote
  kWriteImm,  // the same, then the peer perceives `immediate`, after all earlier writes of this
              // endpoint are visible
  kRead,      // remote -> local
};

// What a peer may do with registered memory: the least that works.
enum class Access : uint8_t { kLocal, kRemoteRead, kRemoteWrite, kRemoteReadWrite };

// Memory registered with a transport. A plain value; valid until Deregister.
struct LocalMemory {
  uint8_t* address = nullptr;
  uint64_t bytes = 0;
  uint32_t local_key = 0;   // lkey
  uint32_t remote_key = 0;  // rkey
  Access access = Access::kLocal;
  int fd = -1;             // of the segment, not owned
  void* handle = nullptr;  // the transport's own
};

// Memory of a peer, as Endpoint::Import gave it. `direct` is where this process can reach it
// itself, or null.
struct RemoteMemory {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint32_t key = 0;
  uint8_t* direct = nullptr;
};

struct WorkRequest {
  OpCode op = OpCode::kWrite;
  bool inline_data = false;  // the payload is read during Post; at most Endpoint::max_inline()
                             // bytes, no local_key needed
  uint32_t length = 0;
  uint32_t immediate = 0;  // kWriteImm only
  uint32_t local_key = 0;
  uint32_t remote_key = 0;
  uint64_t id = 0;  // comes back in the completion of the chain, if this is its last work request
  uint8_t* local = nullptr;
  uint64_t remote = 0;
};

struct Completion {
  uint64_t id = 0;  // PollSend: the chain's. PollReceive: EndpointOptions::context of the endpoint
  uint32_t immediate = 0;  // PollReceive
  bool ok = true;          // false: the endpoint is broken; `error` says why (a static string)
  const char* error = nullptr;
};

struct EndpointOptions {
  uint64_t context = 0;             // what PollReceive reports in Completion::id
  uint32_t send_queue_depth = 256;  // work requests outstanding
  uint32_t max_receives = 256;      // immediates that may wait unperceived, in each direction
  uint32_t first_index = 0;         // where wrapping indices start (tests begin near the limit)
  Counters* counters =
      nullptr;  // required; outlives the endpoint. doorbells, work_requests, send_completions,
                // receive_completions, wakeups_sent, queue_stalls are counted by the transport
};

// One connected, reliable, ordered path to one peer (a queue pair). Destroying it closes it.
class Endpoint {
 public:
  virtual ~Endpoint() = default;

  // Hands a chain to the device with one doorbell and returns how many work requests were accepted,
  // a prefix of `chain`. Only the last accepted one is signalled: PollSend returns its id when
  // everything up to it is complete. Fewer than asked means that the send queue is full (call again
  // after PollSend returned something) or that the endpoint is broken (PollSend returns a
  // completion that is not ok). A chain longer than what is free is cut.
  virtual size_t Post(Span<const WorkRequest> chain) = 0;

  // Post in two steps, for who holds a lock that others spin on: Queue leaves to SendQueued (any
  // thread, without the lock) what takes long, which is a system call that copies the payload.
  virtual size_t Queue(Span<const WorkRequest> chain) { return Post(chain); }
  virtual void SendQueued() {}

  // Completions of chains, oldest first. On shared memory and tcp a chain that ends in kWriteImm
  // completes once the peer has perceived it; writes alone complete once local memory may be used
  // again. A broken endpoint returns one completion with ok false, and then nothing.
  virtual size_t PollSend(Span<Completion> completions) = 0;

  // While true, the next send completion also wakes the progress thread (EventFd becomes readable).
  // Not sticky over sleeps: the engine sets it before it relies on being woken.
  virtual void WantSendEvents(bool want) = 0;

  // Whether chains are outstanding, and how many work requests can be posted now.
  virtual uint32_t chains_in_flight() const = 0;
  virtual uint32_t send_queue_free() const = 0;
  virtual uint32_t max_inline() const = 0;

  // Makes registered memory reachable for the peer; the bytes go to the peer's Import (by any
  // path). Control path.
  virtual Result<std::string> Export(const LocalMemory& memory) = 0;
  // `descriptor` comes from a peer: checked, kDataLoss when it does not parse. Control path.
  virtual Result<RemoteMemory> Import(const std::string& descriptor) = 0;

  // A descriptor that becomes readable when the connection's state changes (rdma_cm events), or -1.
  // When it does, CheckControl says whether the endpoint still lives. Called by the engine's
  // control thread.
  virtual int control_fd() const = 0;
  virtual Status CheckControl() = 0;

  // Stops the endpoint: outstanding chains never complete afterwards, the peer notices. Idempotent,
  // thread-safe.
  virtual void Close() = 0;
};

// The passive half of one connection attempt: good for one Accept.
class Acceptor {
 public:
  virtual ~Acceptor() = default;
  // What the peer's Connect needs; at most 256 bytes.
  virtual const std::string& offer() const = 0;
  // The accepted endpoint posts nothing before the peer's Connect has returned, which anything that
  // the peer says afterwards proves (its memory descriptors do): iWARP does not allow it.
  virtual Result<std::unique_ptr<Endpoint>> Accept(const EndpointOptions& options,
                                                   Deadline deadline) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual const char* name() const = 0;
  // False where both ends must be on one host.
  virtual bool reaches_other_hosts() const { return true; }
  // False where PollReceive moves the bytes: chains complete, and writes and reads of a peer are
  // carried out, as the progress threads of both sides poll, which the same events wake.
  virtual bool one_sided() const { return true; }

  virtual Result<LocalMemory> RegisterMemory(const Segment& segment, Access access) = 0;
  virtual void Deregister(const LocalMemory& memory) = 0;

  // `local_ip` is the address (numeric, IPv4 or IPv6) at which the peer reached this host.
  virtual Result<std::unique_ptr<Acceptor>> Listen(const std::string& local_ip) = 0;
  // `offer` comes from a peer: checked.
  virtual Result<std::unique_ptr<Endpoint>> Connect(const std::string& offer,
                                                    const EndpointOptions& options,
                                                    Deadline deadline) = 0;

  // Arrivals on any endpoint of this transport, fairly between endpoints. All writes that came
  // before an arrival on its endpoint are visible when it is returned, and its receive credit has
  // been given back to the device.
  virtual size_t PollReceive(Span<Completion> completions) = 0;

  // Readable when something happened while the progress thread slept.
  virtual int event_fd() const = 0;
  // Arms event_fd for the endpoints that exist: who makes one ends the sleep. The caller polls once
  // more before it really sleeps, and calls FinishSleep whether it slept or not.
  virtual void PrepareSleep() = 0;
  virtual void FinishSleep() = 0;
};

// What an engine says to each transport that it creates.
struct TransportOptions {
  PortRange ports;   // at which it may listen for peers of other hosts
  bool tls = false;  // what leaves this host is encrypted; set only where a transport can do so
};

// A transport that this build knows, whether or not it can run here.
struct TransportFactory {
  const char* name;
  // OK, or why this transport cannot run here and what to install or raise.
  Status (*probe)();
  Result<std::unique_ptr<Transport>> (*create)(const TransportOptions& options);
  // Nobody on a network can read what it carries: it stays on the host, or TransportOptions::tls
  // encrypts it.
  bool confidential = false;
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_TRANSPORT_TRANSPORT_H_
