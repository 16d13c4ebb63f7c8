#include "tf_rdmabatch/cc/bench/copy_task.h"

#include <algorithm>
#include <cstring>

#include "tf_rdmabatch/cc/engine/sums.h"

namespace rdmabatch::bench {
namespace {

constexpr uint64_t kPoolBytes = 128u << 20;
// The clock is read once for so many bytes: it costs as much as copying a kilobyte.
constexpr uint64_t kBytesPerSample = 64u << 10;

}  // namespace

Result<std::unique_ptr<Task>> CopyTask::Create(const TaskOptions& options) {
  std::unique_ptr<CopyTask> task(new CopyTask(options));
  for (Segment* pool : {&task->from_, &task->to_}) {
    auto segment = Segment::Create(std::max(kPoolBytes, options.bytes), options.engine.huge_pages);
    if (!segment.ok()) return segment.status();
    *pool = std::move(*segment);
    std::memset(pool->data(), 1, pool->size());
  }
  return std::unique_ptr<Task>(std::move(task));
}

Status CopyTask::Work(Phase) {
  const uint64_t bytes = options_.bytes;
  const uint64_t places = from_.size() / bytes;
  const uint64_t copies = std::max<uint64_t>(1, kBytesPerSample / bytes);
  uint64_t place = 0;
  while (!stopped()) {
    const int64_t start = NowNs();
    for (uint64_t i = 0; i < copies; ++i) {
      CopyStream(to_.data() + place * bytes, from_.data() + place * bytes, bytes);
      if (++place == places) place = 0;
      CountOperation();
    }
    const auto each = static_cast<uint64_t>(NowNs() - start) / copies;
    if (counting()) latencies_.Add(each);
  }
  return Status::Ok();
}

void CopyTask::AddLatencies(Measurement* measurement) const {
  measurement->peers.push_back({0, latencies_.buckets()});
}

}  // namespace rdmabatch::bench
