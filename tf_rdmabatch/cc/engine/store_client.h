// The parts of ParameterClient.
#ifndef TF_RDMABATCH_CC_ENGINE_STORE_CLIENT_H_
#define TF_RDMABATCH_CC_ENGINE_STORE_CLIENT_H_

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tf_rdmabatch/cc/base/counters.h"
#include "tf_rdmabatch/cc/base/event_count.h"
#include "tf_rdmabatch/cc/base/timed_lock.h"
#include "tf_rdmabatch/cc/engine/store.h"
#include "tf_rdmabatch/cc/engine/store_wire.h"

namespace rdmabatch {

class ParameterClient::Parameter {
 public:
  Parameter(std::shared_ptr<Connection> server, uint32_t cookie, std::string name)
      : connection(std::move(server)), cookie(cookie), name(std::move(name)) {}

  const std::shared_ptr<Connection> connection;
  const uint32_t cookie;
  const std::string name;

  // Set by Open, before anybody else has the parameter.
  ParameterInfo info;
  uint32_t id = 0;
  RemoteRegion remote;
  PublishedLayout layout;

  // Published last, as far as the server told: the whole, and blocks beyond that.
  std::atomic<uint64_t> whole{0};
  std::vector<std::atomic<uint64_t>> block_versions;
  EventCount changed;

  std::mutex mutex;
  WaitList waiting;                    // for versions; 0 is the reply
  std::optional<OpenReply> reply;      // until Open took it
  bool opened = false;                 // notices go to block_versions, no longer to early
  std::vector<PublishedNotice> early;  // they may overtake the reply
  Status refusal;                      // until a call returned it
  std::atomic<bool> refused{false};

  // One push at a time, and where it goes on after a missed deadline.
  TimedLock pushing;
  uint64_t push_step = 0;
  uint32_t push_contributor = 0;
  uint32_t push_next = 0;

  // The least of all blocks.
  uint64_t Version() const {
    uint64_t least = info.blocks == 0 ? whole.load(std::memory_order_acquire) : VersionOf(0);
    for (uint32_t b = 1; b < info.blocks; ++b) least = std::min(least, VersionOf(b));
    return least;
  }
  uint64_t VersionOf(uint32_t block) const {
    const uint64_t all = whole.load(std::memory_order_acquire);
    const uint64_t own = block_versions[block].load(std::memory_order_acquire);
    return own > all ? own : all;
  }
  uint64_t OffsetOf(uint32_t block) const { return uint64_t{block} * info.spec.block_bytes; }
  // Where this process reads a version word itself.
  const std::atomic<uint64_t>* WordOf(uint64_t version, uint32_t block) const {
    return reinterpret_cast<const std::atomic<uint64_t>*>(remote.direct() +
                                                          layout.WordsOf(version)) +
           block;
  }
  // Bytes of blocks [first, end).
  uint64_t BytesOf(uint32_t first, uint32_t end) const {
    const uint64_t to = end == info.blocks ? info.bytes : OffsetOf(end);
    return to - OffsetOf(first);
  }
  Status TakeRefusal();  // under `mutex`
  // False: the notice does not fit the parameter.
  bool Apply(const PublishedNotice& notice);
};

class ParameterClient::Impl {
 public:
  explicit Impl(MessageSink* next) : next(next) {}

  // store_client.cc
  Result<std::shared_ptr<Parameter>> Open(std::shared_ptr<Connection> server,
                                          const std::string& name, Deadline deadline);
  Result<std::shared_ptr<Parameter>> Ask(std::shared_ptr<Connection> server,
                                         const std::string& name, Deadline deadline);
  Status Answered(Parameter& p);
  void When(Parameter& p, uint64_t version, std::shared_ptr<Waiter> waiter);
  void Cancel();
  Disposition OnOpened(Connection& connection, const IncomingMessage& message);
  Disposition OnPublished(Connection& connection, const IncomingMessage& message);
  Disposition OnRefused(Connection& connection, const IncomingMessage& message);
  void OnClosed(Connection& connection);
  CounterValues counters() const { return counters_.values(); }

  // store_client_datapath.cc
  Status Push(Parameter& p, uint64_t step, uint32_t contributor, const uint8_t* source,
              Deadline deadline);
  Status PushNothing(Parameter& p, uint64_t step, uint32_t contributor, Deadline deadline);
  Status Pull(Parameter& p, uint64_t version, uint8_t* destination, Deadline deadline,
              const Region* region, uint64_t* got);
  Status WaitBlock(Parameter& p, uint32_t block, uint64_t version, Deadline deadline);

  MessageSink* const next;
  std::atomic<Engine*> engine{nullptr};
  std::atomic<uint64_t> message_bytes{0};

 private:
  struct Staging {
    TimedLock lock;
    std::shared_ptr<Region> region;  // lock
  };

  Status Ending(Parameter& p) const;
  Status AwaitReply(Parameter& p, Deadline deadline);
  // Under the parameter's mutex.
  Status EndingLocked(Parameter& p) const;
  std::vector<std::shared_ptr<Parameter>> Held();
  void EndWaiters(Parameter& p, const Status& status);
  // The parameter with the cookie, when it is one of the connection's; `*foreign` when it is
  // another's.
  std::shared_ptr<Parameter> FindOf(const Connection& connection, uint32_t cookie, bool* foreign);

  // Reads all blocks of a version, or of a later one where the server keeps one version only.
  Status ReadAll(Parameter& p, uint64_t version, uint8_t* destination, Deadline deadline,
                 const Region* region, uint64_t* got);
  // Whether every block of a kept version is there, whole.
  Result<bool> IsWhole(Parameter& p, uint64_t version, Deadline deadline);
  // Read blocks [first, *end) and lower *end to what was read; `*got` to the least version.
  Status ReadDirect(Parameter& p, uint64_t version, uint32_t first, uint32_t* end,
                    uint8_t* destination, Deadline deadline, uint64_t* got);
  Status ReadDirectBlock(Parameter& p, uint32_t block, uint8_t* destination, Deadline deadline,
                         uint64_t* got);
  Status ReadRemote(Parameter& p, uint64_t version, uint32_t first, uint32_t* end,
                    uint8_t* destination, Deadline deadline, const Region* region, uint64_t* got);
  Status GrowStaging(uint64_t bytes);

  std::atomic<bool> cancelled_{false};
  Counters counters_;  // shared
  Staging staging_;

  std::mutex mutex_;
  uint32_t next_cookie_ = 0;                                           // mutex_
  std::unordered_map<uint32_t, std::weak_ptr<Parameter>> parameters_;  // mutex_
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_STORE_CLIENT_H_
