// RoundTimes: when a task did what in its rounds, for schedulers and for people.
#ifndef TF_RDMABATCH_CC_ENGINE_ROUND_TIMES_H_
#define TF_RDMABATCH_CC_ENGINE_ROUND_TIMES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "tf_rdmabatch/cc/base/clock.h"
#include "tf_rdmabatch/cc/base/export.h"

namespace rdmabatch {

// RDMABATCH_ROUND_FIELDS(X) lists what is kept of a round: X(name, meaning). *_begin and *_end are
// times of this host's monotonic clock, *_wait are durations, all in nanoseconds; 0: not in this
// round.
#define RDMABATCH_ROUND_FIELDS(X)                                                    \
  X(version, "under which parameters were pulled or published")                      \
  X(step, "to which was contributed, or that was collected")                         \
  X(micro_steps, "of this worker")                                                   \
  X(pull_begin, "the first pull began")                                              \
  X(pull_end, "the last one ended, and computing began")                             \
  X(pull_wait, "of that, blocked until versions were published, while nothing came") \
  X(push_begin, "the first contribution was there to be sent")                       \
  X(compute_end, "the last one was")                                                 \
  X(push_end, "the last one was sent")                                               \
  X(push_wait, "since compute_end, blocked for room")                                \
  X(publish_begin, "the server's first publication began")                           \
  X(publish_end, "the last one ended")                                               \
  X(collect_begin, "the first collection began")                                     \
  X(collect_end, "the last one ended")                                               \
  X(collect_wait, "of that, blocked until workers had contributed")                  \
  X(update_end, "the server's variables were updated")

struct Round {
  static constexpr size_t kMicroSteps = 16;

#define RDMABATCH_X(name, meaning) int64_t name = 0;
  RDMABATCH_ROUND_FIELDS(RDMABATCH_X)
#undef RDMABATCH_X
  // The last contribution of each micro-step was there; of the first kMicroSteps.
  std::array<int64_t, kMicroSteps> micro_step_end{};
};

// RDMABATCH_ROUND_TOTALS(X) lists sums over rounds: X(name, meaning).
#define RDMABATCH_ROUND_TOTALS(X)                                                               \
  X(rounds, "rounds begun")                                                                     \
  X(micro_steps, "micro-steps whose values were pushed")                                        \
  X(pull_ns, "pulling, waits excluded")                                                         \
  X(compute_ns, "from the end of the last pull until the last value to push was there")         \
  X(push_ns, "pushing after that, waits excluded")                                              \
  X(publish_ns, "publishing")                                                                   \
  X(collect_ns, "collecting, waits excluded")                                                   \
  X(update_ns, "from the end of the last collection until the variables were updated")          \
  X(wait_ns, "blocked for versions, for room or for contributions: the sum of the three waits") \
  X(idle_ns, "between the end of a round and the beginning of the next")

struct RoundTotals {
#define RDMABATCH_X(name, meaning) int64_t name = 0;
  RDMABATCH_ROUND_TOTALS(RDMABATCH_X)
#undef RDMABATCH_X
};

// Of a task whose rounds follow each other, or overlap a little: an operation under a new version,
// or of another step, begins a round. Thread-safe; a call takes a lock for some nanoseconds, and
// allocates nothing.
class RDMABATCH_EXPORT RoundTimes {
 public:
  // Rounds that are remembered, and those that may still be under way.
  static constexpr size_t kKept = 1024;
  static constexpr size_t kOpen = 4;

  explicit RoundTimes(int64_t (*now)() = NowNs) : now_(now), kept_(kKept) {}

  enum class Kind { kPull, kPush, kNothing, kPublish, kCollect };
  // An operation under way. Has no effect any more when its round is not open.
  class Op {
   public:
    // It waits for others from now on, and it goes on. For pulls and collections.
    void Blocks() const { times_->Change(*this, -1, 1); }
    void Resumes() const { times_->Change(*this, 1, -1); }
    void Ends() const { times_->End(*this); }

   private:
    friend class RoundTimes;
    Op(RoundTimes* times, Kind kind, uint64_t round) : times_(times), kind_(kind), round_(round) {}
    RoundTimes* times_;
    Kind kind_;
    uint64_t round_;
  };

  Op Pull(uint64_t version) { return Begin(Kind::kPull, version, 0); }
  Op Publish(uint64_t version) { return Begin(Kind::kPublish, version, 0); }
  Op Collect(uint64_t step) { return Begin(Kind::kCollect, 0, step); }
  // Values of a micro-step, from 0, are there; those of the last one are sent. `micro_steps` is 0
  // for a worker that contributes nothing; of one that has pushed values this changes nothing.
  Op Push(uint64_t step, int64_t micro_step, int64_t micro_steps);
  // The pushes under way waited for room for so long.
  void WaitedForRoom(int64_t nanoseconds);
  // A server's variables have the values of this step, if that is open.
  void Updated(uint64_t step);

  RoundTotals totals() const;
  // The last `count` rounds that are remembered, the oldest first.
  std::vector<Round> Last(size_t count) const;
  // The open round of that version, or of that step; one of zeros where there is none.
  Round Of(uint64_t number) const;

 private:
  // Operations of a kind that are under way.
  struct Pending {
    int active = 0;
    int blocked = 0;
    int64_t since = 0;
  };
  struct Entry {
    Round round;
    Pending pulls;
    Pending collections;
  };

  Op Begin(Kind kind, uint64_t version, uint64_t step);
  void End(const Op& op);
  void Change(const Op& op, int active, int blocked);
  // All of these with mutex_.
  Entry& At(uint64_t number) { return kept_[number % kKept]; }
  const Entry& At(uint64_t number) const { return kept_[number % kKept]; }
  bool IsOpen(uint64_t number) const { return number + kOpen >= begun_; }
  // The numbers of rounds; RoundOf begins one where there is none. Find: none is begun_.
  uint64_t Find(uint64_t version, uint64_t step) const;
  uint64_t RoundOf(uint64_t version, uint64_t step);
  static void AddWait(Entry* entry, Kind kind, int active, int blocked, int64_t now);
  // Adds a round and what was between it and the one before, which ended at `*ended`.
  static void Add(const Round& round, int64_t* ended, RoundTotals* totals);

  int64_t (*const now_)();
  mutable std::mutex mutex_;
  std::vector<Entry> kept_;  // mutex_: a ring
  uint64_t begun_ = 0;       // mutex_: rounds
  RoundTotals totals_;       // mutex_: of those that are not open
  int64_t ended_ = 0;        // mutex_: the last of those
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_ROUND_TIMES_H_
