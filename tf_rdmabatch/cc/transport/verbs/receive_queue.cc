#include "tf_rdmabatch/cc/transport/verbs/receive_queue.h"

#include <cerrno>
#include <utility>

#include "tf_rdmabatch/cc/transport/verbs/cm.h"

namespace rdmabatch {
namespace verbs {

Result<std::unique_ptr<ReceiveQueue>> ReceiveQueue::Create(ibv_pd* pd, uint32_t receives) {
  Result<Segment> words = Segment::Create(receives * sizeof(uint32_t));
  if (!words.ok()) return words.status();
  MemoryRegion region(Lib().ibv.reg_mr(pd, words->data(), words->size(), IBV_ACCESS_LOCAL_WRITE));
  if (region == nullptr) return ErrnoStatus("registering the receives of an endpoint", errno);
  return std::unique_ptr<ReceiveQueue>(
      new ReceiveQueue(std::move(*words), std::move(region), receives));
}

ReceiveQueue::ReceiveQueue(Segment words, MemoryRegion region, uint32_t receives)
    : words_(std::move(words)),
      region_(std::move(region)),
      requests_(receives),
      entries_(receives) {}

Status ReceiveQueue::Start(ibv_qp* queue_pair, uint32_t member) {
  queue_pair_ = queue_pair;
  for (size_t i = 0; i < requests_.size(); ++i) {
    entries_[i].addr = reinterpret_cast<uint64_t>(words_.data()) + i * sizeof(uint32_t);
    entries_[i].length = sizeof(uint32_t);
    entries_[i].lkey = region_->lkey;
    requests_[i].wr_id = (uint64_t{i} << kMemberBits) | member;
    requests_[i].sg_list = &entries_[i];
    requests_[i].num_sge = 1;
    requests_[i].next = i + 1 < requests_.size() ? &requests_[i + 1] : nullptr;
  }
  pending_ = requests_.data();
  if (Repost()) return Status::Ok();
  return {StatusCode::kResourceExhausted, "the device refused the receives of an endpoint"};
}

bool ReceiveGroup::FindPlace(uint32_t receives, uint32_t* member) {
  uint64_t reserved = 0;
  bool found = false;
  const uint64_t drained_now = drained.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < kMembers; ++i) {
    Member& place = members[i];
    if (place.receives != 0 && place.reusable_at != 0 && place.reusable_at <= drained_now) {
      place.receives = 0;
      place.reusable_at = 0;
    }
    reserved += place.receives;
    if (place.receives == 0 && !found) {
      found = true;
      *member = i;
    }
  }
  return found && reserved + receives <= capacity;
}

}  // namespace verbs
}  // namespace rdmabatch
