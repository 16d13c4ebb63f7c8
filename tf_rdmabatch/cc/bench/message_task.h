// MessageTask: sends messages as fast as they are taken, or lone ones that are answered; counts
// those that arrive.
#ifndef TF_RDMABATCH_CC_BENCH_MESSAGE_TASK_H_
#define TF_RDMABATCH_CC_BENCH_MESSAGE_TASK_H_

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tf_rdmabatch/cc/bench/histogram.h"
#include "tf_rdmabatch/cc/bench/task.h"

namespace rdmabatch::bench {

class MessageTask : public Task, private MessageSink {
 public:
  static Result<std::unique_ptr<Task>> Create(const TaskOptions& options);
  ~MessageTask() override;

 protected:
  Status Work(Phase phase) override;
  void Interrupt() override;
  std::vector<uint64_t> Arrived() const override;
  void AddLatencies(Measurement* measurement) const override;
  void OnConnectedTo(const std::shared_ptr<Connection>& connection) override;

 private:
  // A message's tag. A ping is answered with a pong.
  enum Tag : uint64_t { kLoad = 0, kPing = 1, kPong = 2 };

  struct Peer {
    std::shared_ptr<Connection> connection;
    Counter arrived;
    int64_t sent_ns = 0;  // of the ping under way
    Histogram latencies;
  };

  explicit MessageTask(const TaskOptions& options) : Task(options) {}

  void OnConnected(Connection& connection) override;
  Disposition OnMessage(Connection& connection, const IncomingMessage& message) override;

  std::vector<Peer*> Targets() const;
  Status SendLoad(const std::vector<Peer*>& targets);
  // Sends as many messages as a run takes; adds them to `*sent`.
  Status SendRun(Peer& peer, uint64_t* sent);
  Status SendPings(const std::vector<Peer*>& targets);
  // From the sink a message that fits in a slot is sent at once; a larger one, for which the sender
  // may have to wait, by the working thread.
  void SendSoon(Peer& peer, Tag tag);
  OutgoingMessage Message(Tag tag) const;

  std::vector<uint8_t> payload_;
  mutable std::mutex mutex_;  // peers_, connected_, later_
  std::deque<Peer> peers_;
  std::vector<Peer*> connected_;
  std::condition_variable later_changed_;
  std::deque<std::pair<Peer*, Tag>> later_;
};

}  // namespace rdmabatch::bench

#endif  // TF_RDMABATCH_CC_BENCH_MESSAGE_TASK_H_
