// Histogram: latencies in buckets that are at most 1 % wide, for any number of samples.
#ifndef TF_RDMABATCH_CC_BENCH_HISTOGRAM_H_
#define TF_RDMABATCH_CC_BENCH_HISTOGRAM_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tf_rdmabatch/cc/base/counters.h"

namespace rdmabatch::bench {

// One thread adds, any number read. Allocates when it is made, never later.
class Histogram {
 public:
  Histogram() : counts_(kBuckets) {}

  void Add(uint64_t ns) {
    // Below 2^kBits a bucket is one nanosecond; above, each power of two has 2^kBits buckets.
    const int shift = ns < kPerPower ? 0 : 63 - __builtin_clzll(ns) - kBits;
    counts_[shift * kPerPower + (ns >> shift)].Add(1);
  }

  // (a value in the middle of the bucket, samples) of each bucket that is not empty, in order.
  std::vector<std::pair<uint64_t, uint64_t>> buckets() const {
    std::vector<std::pair<uint64_t, uint64_t>> buckets;
    for (size_t i = 0; i < counts_.size(); ++i) {
      const uint64_t count = counts_[i].value();
      if (count == 0) continue;
      const uint64_t shift = i < 2 * kPerPower ? 0 : i / kPerPower - 1;
      const uint64_t low = (i - shift * kPerPower) << shift;
      buckets.emplace_back(low + ((uint64_t{1} << shift) >> 1), count);
    }
    return buckets;
  }

 private:
  static constexpr int kBits = 7;
  static constexpr uint64_t kPerPower = uint64_t{1} << kBits;
  static constexpr size_t kBuckets = (64 - kBits + 1) * kPerPower;

  std::vector<Counter> counts_;
};

}  // namespace rdmabatch::bench

#endif  // TF_RDMABATCH_CC_BENCH_HISTOGRAM_H_
