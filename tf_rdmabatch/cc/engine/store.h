// The parameter store: named parameters in blocks, on a server; and a worker's view of them.
//
// A round of one block on the server: contributions arrive and are summed (the first is copied, the
// others added, straight from their slots) -> complete when every contributor's block of that step
// is in -> collected -> published under the next version. Under Consistency::kBsp a contribution
// names its step: one of a later step waits in its slot until that is the awaited one, which it is
// once the step before was collected, or as soon as somebody collects it. Steps may be left out:
// what came of one that was not collected is dropped, also when it comes late. Under kAsp
// contributions are added as they come and collected at any time. The first step is 1.
#ifndef TF_RDMABATCH_CC_ENGINE_STORE_H_
#define TF_RDMABATCH_CC_ENGINE_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/counters.h"
#include "tf_rdmabatch/cc/base/export.h"
#include "tf_rdmabatch/cc/base/span.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/base/waiter.h"
#include "tf_rdmabatch/cc/engine/connection.h"
#include "tf_rdmabatch/cc/engine/dtype.h"
#include "tf_rdmabatch/cc/engine/engine.h"
#include "tf_rdmabatch/cc/engine/message.h"
#include "tf_rdmabatch/cc/memory/shared_view.h"

namespace rdmabatch {

enum class Consistency : uint8_t { kBsp = 0, kAsp = 1 };

struct ParameterSpec {
  std::string name;  // 1 to 256 bytes
  DType dtype = DType::kFloat32;
  std::vector<uint64_t> shape;
  uint32_t contributors = 1;  // pushes that make a round complete (kBsp)
  uint32_t block_bytes =
      0;  // 0: as much as fits in a slot; rounded down to whole elements of 64 bytes
  Consistency consistency = Consistency::kBsp;
  // Kept at a time, 1 or 2 (kBsp). With 2, version v can be read until v + 2 is published, and
  // Parameter views are possible; with 1, only until v + 1 is.
  uint32_t versions = 1;
};

// Of a parameter's value.
struct PublishedPiece {
  uint64_t offset = 0;  // bytes
  uint64_t bytes = 0;
  const void* data = nullptr;  // null: it lies in the published memory
};

struct ParameterInfo {
  ParameterSpec spec;
  uint64_t bytes = 0;
  uint32_t blocks = 0;
  uint64_t version = 0;  // published last; 0 before the first Publish
  uint64_t step = 0;     // of the contributions that are awaited next
};

// The server's half. A MessageSink: give it to Engine::Create (or forward to it), then Attach the
// engine. Thread-safe.
class RDMABATCH_EXPORT ParameterServer : public MessageSink {
 public:
  // User messages (kUser) go on to `next`, if any; it outlives the server.
  explicit ParameterServer(MessageSink* next = nullptr);
  ~ParameterServer() override;

  void Attach(Engine* engine);

  // Makes a parameter known; workers may ask for it before. Not readable until it was published.
  // kAlreadyExists.
  Status Serve(const ParameterSpec& spec);
  // Waits until every block of `step` is complete and takes the sum: copies it to `destination`
  // (`bytes` long, may be null to take it without looking) and makes room for the next step. A call
  // that fails took nothing. kUnavailable names a contributor whose connection ended before its
  // contribution was complete; another connection may open the parameter and push in its place.
  // kAsp: whatever came since the last Collect, without a wait; then `*contributions` (optional) is
  // how many whole pushes that was at least. kFailedPrecondition: a step before the one that is
  // awaited, or another Collect of this parameter is under way.
  Status Collect(const std::string& name, uint64_t step, void* destination, uint64_t bytes,
                 Deadline deadline, uint64_t* contributions = nullptr);
  // The same without a copy: the memory in which the contributions were summed. It is used again
  // once the last pointer to it is gone.
  Result<std::shared_ptr<uint8_t>> TakeSum(const std::string& name, uint64_t step,
                                           Deadline deadline);
  // Whether Collect of `step`, which is the awaited one from then on, need not wait, or would not
  // succeed.
  bool IsComplete(const std::string& name, uint64_t step);
  // Ends `waiter` once Collect of `step` need not wait, or would not succeed: from this thread when
  // it is so already, else from one of the engine's or of the store's, so `waiter` may not block.
  void WhenComplete(const std::string& name, uint64_t step, std::shared_ptr<Waiter> waiter);
  // Publishes `source` under `version` (greater than the last; 1 is the first) and tells the
  // workers that opened it, never waiting for one: a worker without a free slot is told later.
  // `source` equal to published(name) publishes in place, without a copy; a kAsp reader may then
  // have seen parts of the update before. Where two versions are kept, each is a copy.
  Status Publish(const std::string& name, uint64_t version, const void* source, uint64_t bytes);
  // The same for pieces in ascending order; what is in none stays as it is.
  Status Publish(const std::string& name, uint64_t version, Span<const PublishedPiece> pieces);
  // The published region's memory, for updates in place. Stays valid while the server lives.
  // kFailedPrecondition where two versions are kept.
  Result<uint8_t*> published(const std::string& name);
  // The same memory mapped again, for values that lie in it and may be kept by others: the mapping
  // stays as long as it is shared. `renew`: what shares the last one keeps its present value, in
  // memory of its own, and a new one takes its place. Null where the parameter is too small to
  // begin at a page.
  Result<std::shared_ptr<SharedView>> PublishedView(const std::string& name, bool renew = false);
  Result<ParameterInfo> Info(const std::string& name) const;
  std::vector<std::string> names() const;
  // Ends every wait with kCancelled, those to come included.
  void Cancel();
  // Copies and sums made here, and what was refused. An engine's own counters do not have them.
  CounterValues counters() const;

  // Uses the connection's context.
  void OnConnected(Connection& connection) override;
  Disposition OnMessage(Connection& connection, const IncomingMessage& message) override;
  void OnClosed(Connection& connection, const Status& status) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The worker's half: one for each engine; parameters of any number of servers. Thread-safe.
class RDMABATCH_EXPORT ParameterClient : public MessageSink {
 public:
  explicit ParameterClient(MessageSink* next = nullptr);
  ~ParameterClient() override;

  // Lets Pull allocate staging memory; needed before a Pull over a transport that does not reach
  // the server's memory directly.
  void Attach(Engine* engine);

  class Parameter;  // an open parameter; opaque

  // Waits until the server serves the name.
  Result<std::shared_ptr<Parameter>> Open(std::shared_ptr<Connection> server,
                                          const std::string& name, Deadline deadline);
  // Open in parts, for those who may not wait. Ask sends the question and waits for a slot at most;
  // WhenAnswered ends `waiter` once there is an answer, or will be none, possibly from the progress
  // thread; Answered then makes the parameter usable.
  Result<std::shared_ptr<Parameter>> Ask(std::shared_ptr<Connection> server,
                                         const std::string& name, Deadline deadline);
  void WhenAnswered(Parameter& parameter, std::shared_ptr<Waiter> waiter);
  Status Answered(Parameter& parameter);
  // Whether this process reaches the server's memory itself.
  static bool IsDirect(const Parameter& parameter);
  // As it was when it was opened.
  static const ParameterInfo& Info(const Parameter& parameter);

  // Contributes nothing to a step: for a contributor that has no part in it. Waits for one slot.
  Status PushNothing(Parameter& parameter, uint64_t step, uint32_t contributor, Deadline deadline);
  // So many bytes of a contribution go into a message, as whole blocks: what a push is cut into. Of
  // pushes that begin later, and of the rest of those under way. 0, as at first, is one block.
  void SetMessageBytes(uint64_t bytes);
  // Sends this contributor's blocks of `step`; returns when all of them are in slots (the memory
  // may be reused). After kDeadlineExceeded the same call goes on where it stopped. A refusal by
  // the server (a step twice) ends a later call on this parameter with its text.
  Status Push(Parameter& parameter, uint64_t step, uint32_t contributor, const void* source,
              uint64_t bytes, Deadline deadline);
  // Waits until `version` (or a later one) of each block is published and reads it with one-sided
  // reads. Where two versions are kept, `version` itself is read for as long as it is there. On
  // transports that need registered memory, destinations inside `region` (optional) are read into
  // directly, others through a staging buffer. `*got` (optional) is the version that was read.
  // kAsp: consistent per block (sequence lock).
  Status Pull(Parameter& parameter, uint64_t version, void* destination, uint64_t bytes,
              Deadline deadline, const Region* region = nullptr, uint64_t* got = nullptr);
  // Where a version, or where one is kept a later one, lies in shared memory, whole pages: null
  // when it does not (any more). It stays as it is until it is updated in place, or version + 2 is
  // published where two versions are kept.
  const uint8_t* Shared(const Parameter& parameter, uint64_t version) const;
  Status WaitVersion(Parameter& parameter, uint64_t version, Deadline deadline);
  // Whether WaitVersion would return at once.
  bool HasVersion(const Parameter& parameter, uint64_t version) const;
  // Ends `waiter` when WaitVersion would return: from this thread when that is so already, else
  // from the progress thread, so `waiter` may not block.
  void WhenVersion(Parameter& parameter, uint64_t version, std::shared_ptr<Waiter> waiter);
  // Ends every wait with kCancelled, those to come included.
  void Cancel();
  CounterValues counters() const;

  Disposition OnMessage(Connection& connection, const IncomingMessage& message) override;
  void OnClosed(Connection& connection, const Status& status) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_STORE_H_
