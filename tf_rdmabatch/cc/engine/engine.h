// Engine: the entry point of the library. One a task.
//
// An engine has a progress thread (arrivals, completions, deferred posts), a control thread
// (listening, deaths, closes) and, briefly, a thread for each connection that is being accepted;
// docs/threads.md has the whole picture. All methods are thread-safe. After fork() the child's copy
// refuses every call (kFailedPrecondition).
#ifndef TF_RDMABATCH_CC_ENGINE_ENGINE_H_
#define TF_RDMABATCH_CC_ENGINE_ENGINE_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/counters.h"
#include "tf_rdmabatch/cc/base/export.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/base/unique_fd.h"
#include "tf_rdmabatch/cc/engine/connection.h"
#include "tf_rdmabatch/cc/engine/hello.h"
#include "tf_rdmabatch/cc/engine/message.h"
#include "tf_rdmabatch/cc/engine/options.h"
#include "tf_rdmabatch/cc/engine/transport_rules.h"

namespace rdmabatch {

class ProgressThread;
class ControlThread;

class RDMABATCH_EXPORT Engine {
 public:
  // `sink` gets all arrivals; it is not owned and outlives the engine. kInvalidArgument names the
  // option that is wrong; kUnavailable says why the transport asked for cannot run here.
  // `known`: of which transports there are; outlives the engine.
  static Result<std::unique_ptr<Engine>> Create(const EngineOptions& options, MessageSink* sink,
                                                Span<const TransportFactory> known = Transports());
  // Closes every connection and joins every thread.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Starts to accept peers; returns the bound "ip:port" (port 0 takes a free one). kAlreadyExists:
  // port in use.
  Result<std::string> Listen(const std::string& address);
  // Connects to a listening engine, which may start later: tries until the deadline.
  Result<std::shared_ptr<Connection>> Connect(const std::string& address, Deadline deadline) {
    return Connect(address, deadline, deadline);
  }
  // Waits until `listening` for somebody to listen, and then until `deadline` for an agreement.
  Result<std::shared_ptr<Connection>> Connect(const std::string& address, Deadline listening,
                                              Deadline deadline);

  // Page-aligned memory registered with every transport that this engine can use. kPermissionDenied
  // says how to raise the memlock limit.
  Result<std::shared_ptr<Region>> Allocate(uint64_t bytes, Access access);

  // Those whose peers are ready.
  std::vector<std::shared_ptr<Connection>> connections() const;
  // Sums over all connections, past ones included, since the last ResetCounters.
  CounterValues counters() const;
  void ResetCounters();

  // Ends everything: waits on connections return kCancelled or kUnavailable. Idempotent.
  void Shutdown();

  const EngineOptions& options() const { return options_; }
  MessageSink* sink() const { return sink_; }

 private:
  friend class Connection;
  friend class Handshake;
  friend class ControlThread;
  Engine(EngineOptions options, MessageSink* sink, Span<const TransportFactory> known);

  Status Usable() const;
  Status OpenTransports();
  // Runs the handshake on a socket and, when it succeeds, adopts the connection.
  Result<std::shared_ptr<Connection>> Establish(BootstrapSocket socket, bool active,
                                                Deadline deadline);
  std::vector<std::shared_ptr<Connection>> AllConnections() const;
  // Puts a connection into the list, before the peer may use it.
  void Adopt(const std::shared_ptr<Connection>& connection);
  // Fails the connection from the progress thread, once what has arrived was handled.
  // `announced`: of each lane, by the peer before its end, as far as it said so.
  void FailLater(std::shared_ptr<Connection> connection, const Status& status,
                 std::vector<uint64_t> announced = {});
  void EndWhenDrained(std::shared_ptr<Connection> connection, const Status& status,
                      std::vector<uint64_t> announced, Deadline deadline);
  void Retire(Connection* connection);

  const EngineOptions options_;
  MessageSink* const sink_;
  const uint64_t fork_generation_;
  PortRange ports_;                           // at which this engine and its transports listen
  const Span<const TransportFactory> known_;  // in order of preference
  TransportRules rules_;
  bool tls_ = false;                                    // what leaves this host is encrypted
  std::vector<std::shared_ptr<Transport>> transports_;  // those that can run, in the same order
  std::vector<TransportState> states_;                  // of all known ones
  std::unique_ptr<ProgressThread> progress_;
  std::unique_ptr<ControlThread> control_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> refused_{0};

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Connection>> connections_;
  CounterValues retired_;
  CounterValues baseline_;
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_ENGINE_H_
