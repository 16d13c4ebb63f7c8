// BlockTuner: finds out what to cut pushes into, from how long whole rounds take.
#ifndef TF_RDMABATCH_CC_ENGINE_BLOCK_TUNER_H_
#define TF_RDMABATCH_CC_ENGINE_BLOCK_TUNER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "tf_rdmabatch/cc/base/export.h"

namespace rdmabatch {

// Each size has its turn of some rounds, and all of them several times over, since a machine may be
// slow for a while: the shortest turn of a size counts. Then the size is kept with which rounds
// were shortest; the last one, unless another is clearly better. Servers take any number of whole
// blocks in a message, so tasks need not agree, and sums do not depend on it. Thread-safe.
class RDMABATCH_EXPORT BlockTuner {
 public:
  // The first rounds, with the last size: memory is mapped, kernels are made. In a turn the first
  // round is not counted. A multiple of 2 and 3, so that a program which alternates between that
  // many kinds of rounds gives each size as many of each.
  static constexpr int kWarmUpRounds = 6;
  static constexpr int kRounds = 6;
  static constexpr int kPasses = 3;
  // What a round has to be shorter, of one with the last size.
  static constexpr double kLeastGain = 0.03;
  // A server's blocks, if it is not told otherwise, of a worker that tunes: with the headers, a
  // power of two of them fits into a slot of as many KiB.
  static constexpr uint32_t kGrainBytes = (32u << 10) - 64;

  // What fits into a slot: the grain, doubled as often as it goes.
  static std::vector<uint32_t> SizesFor(uint32_t slot_bytes);

  // At least one size. `settled` is told, once, what was tried and what is kept; it may not block.
  BlockTuner(std::vector<uint32_t> sizes, std::function<void(const std::string&)> settled);

  // A push to `step` begins at `now_ns`: returns what it is to be cut into.
  uint32_t Next(uint64_t step, int64_t now_ns);
  uint32_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  void EndTurn(double round_ns);  // mutex_
  void Settle();                  // mutex_
  std::string Report() const;     // mutex_

  const std::vector<uint32_t> sizes_;
  const std::function<void(const std::string&)> settled_;
  std::atomic<uint32_t> bytes_;
  std::atomic<bool> done_{false};
  std::mutex mutex_;
  std::vector<double> best_ns_;  // mutex_: a round, of each size
  uint64_t step_ = 0;            // mutex_: the last one
  int turn_ = -1;                // mutex_; -1 is the warm-up
  int round_ = 0;                // mutex_: within the turn
  int64_t begin_ns_ = 0;         // mutex_: of the turn's second round
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_BLOCK_TUNER_H_
