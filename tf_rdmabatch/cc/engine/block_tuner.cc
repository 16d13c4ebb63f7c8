#include "tf_rdmabatch/cc/engine/block_tuner.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "tf_rdmabatch/cc/engine/store_wire.h"
#include "tf_rdmabatch/cc/engine/wire.h"

namespace rdmabatch {

std::vector<uint32_t> BlockTuner::SizesFor(uint32_t slot_bytes) {
  constexpr uint32_t kHeaders = sizeof(SlotHeader) + sizeof(MessageHeader) + sizeof(PushHeader);
  std::vector<uint32_t> sizes = {kGrainBytes};
  while (uint64_t{2} * sizes.back() + kHeaders <= slot_bytes) sizes.push_back(2 * sizes.back());
  return sizes;
}

BlockTuner::BlockTuner(std::vector<uint32_t> sizes, std::function<void(const std::string&)> settled)
    : sizes_(std::move(sizes)),
      settled_(std::move(settled)),
      bytes_(sizes_.back()),
      done_(sizes_.size() == 1),
      best_ns_(sizes_.size(), std::numeric_limits<double>::max()) {}

uint32_t BlockTuner::Next(uint64_t step, int64_t now_ns) {
  if (done_.load(std::memory_order_acquire)) return bytes();
  std::lock_guard<std::mutex> lock(mutex_);
  if (step <= step_ || done_.load(std::memory_order_relaxed)) return bytes();
  step_ = step;
  const int rounds = turn_ < 0 ? kWarmUpRounds : 1 + kRounds;
  if (round_ == rounds) {
    EndTurn(static_cast<double>(now_ns - begin_ns_) / kRounds);
    round_ = 0;
  }
  if (round_ == 1) begin_ns_ = now_ns;
  ++round_;
  return bytes();
}

void BlockTuner::EndTurn(double round_ns) {
  const auto sizes = static_cast<int>(sizes_.size());
  if (turn_ >= 0) {
    double& best = best_ns_[static_cast<size_t>(turn_ % sizes)];
    best = std::min(best, round_ns);
  }
  if (++turn_ == kPasses * sizes) {
    Settle();
  } else {
    bytes_.store(sizes_[static_cast<size_t>(turn_ % sizes)], std::memory_order_relaxed);
  }
}

void BlockTuner::Settle() {
  const auto best = std::min_element(best_ns_.begin(), best_ns_.end());
  const bool better = *best < (1 - kLeastGain) * best_ns_.back();
  const auto kept = better ? static_cast<size_t>(best - best_ns_.begin()) : sizes_.size() - 1;
  bytes_.store(sizes_[kept], std::memory_order_relaxed);
  done_.store(true, std::memory_order_release);
  if (settled_) settled_(Report());
}

std::string BlockTuner::Report() const {
  std::string tried;
  for (size_t i = 0; i < sizes_.size(); ++i) {
    char text[64];
    std::snprintf(text, sizeof(text), "%s%u bytes (%.3f ms a round)", i == 0 ? "" : ", ", sizes_[i],
                  best_ns_[i] / 1e6);
    tried += text;
  }
  return "block size: tried " + tried + "; keeps " + std::to_string(bytes()) + " bytes";
}

}  // namespace rdmabatch
