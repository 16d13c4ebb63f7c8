// Push and Pull.
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "tf_rdmabatch/cc/base/bits.h"
#include "tf_rdmabatch/cc/engine/store_client.h"
#include "tf_rdmabatch/cc/engine/sums.h"

namespace rdmabatch {
namespace {

// What is read through the staging buffer at a time, unless one block is more.
constexpr uint64_t kStagingBytes = 4 << 20;
constexpr uint64_t kPage = 4096;
// A sequence lock is tried so often before the writer is given the processor.
constexpr int kSpins = 64;

Status Missed(const ParameterClient::Parameter& p, const std::string& what) {
  return {StatusCode::kDeadlineExceeded, what + " parameter \"" + p.name + "\" of " +
                                             p.connection->peer().ToString() +
                                             " missed its deadline"};
}

bool Stable(uint64_t before, uint64_t after) { return before == after && before % 2 == 0; }

}  // namespace

Status ParameterClient::Impl::Push(Parameter& p, uint64_t step, uint32_t contributor,
                                   const uint8_t* source, Deadline deadline) {
  RDMABATCH_RETURN_IF_ERROR(Ending(p));
  TimedGuard guard(p.pushing, deadline);
  if (!guard.locked()) return Missed(p, "pushing to");
  if (p.push_step != step || p.push_contributor != contributor) p.push_next = 0;
  p.push_step = step;
  p.push_contributor = contributor;
  PushHeader header{p.id, 0, step, contributor, 0, 0};
  Status status;
  const uint64_t at_once = std::max<uint64_t>(
      1, message_bytes.load(std::memory_order_relaxed) / p.info.spec.block_bytes);
  const bool several = p.push_next + at_once < p.info.blocks;
  while (p.push_next < p.info.blocks) {
    header.block = p.push_next;
    const auto count =
        static_cast<uint32_t>(std::min(at_once, uint64_t{p.info.blocks} - header.block));
    header.bytes = static_cast<uint32_t>(BlocksBytes(p.info, header.block, count));
    const OutgoingMessage message{MessageKind::kPush,
                                  0,
                                  {reinterpret_cast<const uint8_t*>(&header), sizeof(header)},
                                  {source + p.OffsetOf(header.block), header.bytes}};
    status = p.connection->Send(message, deadline, header.block + count < p.info.blocks);
    if (status.ok() && p.refused.load(std::memory_order_relaxed)) status = Ending(p);
    if (!status.ok()) break;
    p.push_next += count;
  }
  if (several) p.connection->Flush();
  if (status.code() != StatusCode::kDeadlineExceeded) p.push_next = 0;
  return status;
}

Status ParameterClient::Impl::WaitBlock(Parameter& p, uint32_t block, uint64_t version,
                                        Deadline deadline) {
  while (p.VersionOf(block) < version) {
    const uint64_t key = p.changed.Prepare();
    Status ending = Ending(p);
    if (!ending.ok() || p.VersionOf(block) >= version) {
      p.changed.Cancel();
      if (!ending.ok()) return ending;
      break;
    }
    if (!p.changed.Wait(key, deadline) && p.VersionOf(block) < version) {
      return Missed(p, "waiting for version " + std::to_string(version) + " of");
    }
  }
  return Status::Ok();
}

Status ParameterClient::Impl::PushNothing(Parameter& p, uint64_t step, uint32_t contributor,
                                          Deadline deadline) {
  RDMABATCH_RETURN_IF_ERROR(Ending(p));
  const PushHeader header{p.id, 0, step, contributor, 0, kPushNothing};
  return p.connection->Send(
      {MessageKind::kPush, 0, {reinterpret_cast<const uint8_t*>(&header), sizeof(header)}, {}},
      deadline);
}

Status ParameterClient::Impl::Pull(Parameter& p, uint64_t version, uint8_t* destination,
                                   Deadline deadline, const Region* region, uint64_t* got) {
  RDMABATCH_RETURN_IF_ERROR(Ending(p));
  uint64_t read = 0;
  if (p.layout.versions == 1) {
    RDMABATCH_RETURN_IF_ERROR(ReadAll(p, version, destination, deadline, region, &read));
  }
  while (p.layout.versions > 1 && read == 0) {
    // What was asked for, until it makes room for a later one.
    const uint64_t last = p.Version();
    const uint64_t chosen = last <= version + 1 ? version : last;
    RDMABATCH_RETURN_IF_ERROR(ReadAll(p, chosen, destination, deadline, region, &read));
    auto whole = IsWhole(p, chosen, deadline);
    if (!whole.ok()) return whole.status();
    if (*whole) break;
    // It is being overwritten, with this one:
    version = chosen + p.layout.versions;
    read = 0;
  }
  if (got != nullptr) *got = read;
  return Status::Ok();
}

Status ParameterClient::Impl::ReadAll(Parameter& p, uint64_t version, uint8_t* destination,
                                      Deadline deadline, const Region* region, uint64_t* got) {
  uint64_t least = ~uint64_t{0};
  for (uint32_t first = 0; first < p.info.blocks;) {
    RDMABATCH_RETURN_IF_ERROR(WaitBlock(p, first, version, deadline));
    uint32_t end = first + 1;
    while (end < p.info.blocks && p.VersionOf(end) >= version) ++end;
    uint8_t* const to = destination + p.OffsetOf(first);
    const Status read = p.remote.direct() != nullptr
                            ? ReadDirect(p, version, first, &end, to, deadline, &least)
                            : ReadRemote(p, version, first, &end, to, deadline, region, &least);
    RDMABATCH_RETURN_IF_ERROR(read);
    first = end;
  }
  *got = p.layout.versions > 1 ? version : least;
  return Status::Ok();
}

Result<bool> ParameterClient::Impl::IsWhole(Parameter& p, uint64_t version, Deadline deadline) {
  const auto all = [&](const std::atomic<uint64_t>* words) {
    std::atomic_thread_fence(std::memory_order_acquire);
    for (uint32_t b = 0; b < p.info.blocks; ++b) {
      if (words[b].load(std::memory_order_relaxed) != 2 * version) return false;
    }
    return true;
  };
  if (p.remote.direct() != nullptr) return all(p.WordOf(version, 0));
  TimedGuard guard(staging_.lock, deadline);
  if (!guard.locked()) return Missed(p, "reading");
  const uint64_t bytes = uint64_t{p.info.blocks} * sizeof(uint64_t);
  RDMABATCH_RETURN_IF_ERROR(GrowStaging(bytes));
  const RegionTransfer words{staging_.region.get(), 0, &p.remote, p.layout.WordsOf(version), bytes};
  RDMABATCH_RETURN_IF_ERROR(p.connection->Read({&words, 1}, deadline));
  return all(reinterpret_cast<const std::atomic<uint64_t>*>(staging_.region->data()));
}

Status ParameterClient::Impl::ReadDirect(Parameter& p, uint64_t version, uint32_t first,
                                         uint32_t* end, uint8_t* destination, Deadline deadline,
                                         uint64_t* got) {
  if (p.info.spec.consistency == Consistency::kBsp) {
    for (uint32_t b = first; b < *end; ++b) *got = std::min(*got, p.VersionOf(b));
    const uint64_t bytes = p.BytesOf(first, *end);
    CopyStream(destination, p.remote.direct() + p.layout.DataOf(version) + p.OffsetOf(first),
               bytes);
    p.connection->CountDirectRead(bytes);
    return Status::Ok();
  }
  for (uint32_t b = first; b < *end; ++b) {
    RDMABATCH_RETURN_IF_ERROR(
        ReadDirectBlock(p, b, destination + p.OffsetOf(b) - p.OffsetOf(first), deadline, got));
  }
  return Status::Ok();
}

// The reader's half of a sequence lock.
Status ParameterClient::Impl::ReadDirectBlock(Parameter& p, uint32_t block, uint8_t* destination,
                                              Deadline deadline, uint64_t* got) {
  const std::atomic<uint64_t>* const word = p.WordOf(0, block);
  const uint8_t* const data = p.remote.direct() + p.layout.DataOf(0) + p.OffsetOf(block);
  const uint32_t bytes = BlockBytes(p.info, block);
  for (int spin = 1;; ++spin) {
    const uint64_t before = word->load(std::memory_order_acquire);
    if (before % 2 == 0) {
      std::memcpy(destination, data, bytes);
      p.connection->CountDirectRead(bytes);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (Stable(before, word->load(std::memory_order_relaxed))) {
        *got = std::min(*got, before / 2);
        return Status::Ok();
      }
    }
    CpuRelax();
    if (spin % kSpins != 0) continue;
    RDMABATCH_RETURN_IF_ERROR(Ending(p));
    if (deadline.expired()) return Missed(p, "reading");
    sched_yield();
  }
}

Status ParameterClient::Impl::GrowStaging(uint64_t bytes) {
  if (staging_.region != nullptr && staging_.region->size() >= bytes) return Status::Ok();
  Engine* const attached = engine.load(std::memory_order_acquire);
  if (attached == nullptr) {
    return {StatusCode::kFailedPrecondition, "the parameter client has no engine yet: attach one"};
  }
  auto region = attached->Allocate(std::max(bytes, kStagingBytes), Access::kLocal);
  if (!region.ok()) return region.status();
  staging_.region = std::move(*region);
  return Status::Ok();
}

// In one chain: the data and, under kAsp, the version words before and after it. Reads of a chain
// happen in order.
Status ParameterClient::Impl::ReadRemote(Parameter& p, uint64_t version, uint32_t first,
                                         uint32_t* end, uint8_t* destination, Deadline deadline,
                                         const Region* region, uint64_t* got) {
  const bool bsp = p.info.spec.consistency == Consistency::kBsp;
  const bool into_region = region != nullptr && destination >= region->data() &&
                           destination <= region->data() + region->size() &&
                           p.BytesOf(first, *end) <=
                               static_cast<uint64_t>(region->data() + region->size() - destination);
  RegionTransfer data;
  data.remote = &p.remote;
  data.remote_offset = p.layout.DataOf(version) + p.OffsetOf(first);
  if (bsp && into_region) {
    for (uint32_t b = first; b < *end; ++b) *got = std::min(*got, p.VersionOf(b));
    data.local = region;
    data.local_offset = static_cast<uint64_t>(destination - region->data());
    data.bytes = p.BytesOf(first, *end);
    return p.connection->Read({&data, 1}, deadline);
  }

  TimedGuard guard(staging_.lock, deadline);
  if (!guard.locked()) return Missed(p, "reading");
  if (bsp || !into_region) {
    const uint64_t at_once = std::max<uint64_t>(1, kStagingBytes / 2 / p.info.spec.block_bytes);
    *end = static_cast<uint32_t>(std::min<uint64_t>(*end, first + at_once));
  }
  const uint64_t words = uint64_t{*end - first} * sizeof(uint64_t);
  const uint64_t data_at = bsp ? 0 : AlignUp(2 * words, kPage);
  data.bytes = p.BytesOf(first, *end);
  RDMABATCH_RETURN_IF_ERROR(GrowStaging(data_at + (into_region ? 0 : data.bytes)));
  const Region& staging = *staging_.region;
  data.local = into_region ? region : &staging;
  data.local_offset = into_region ? static_cast<uint64_t>(destination - region->data()) : data_at;
  const uint64_t words_at = p.layout.WordsOf(version) + first * sizeof(uint64_t);
  const RegionTransfer chain[] = {{&staging, 0, &p.remote, words_at, words},
                                  data,
                                  {&staging, words, &p.remote, words_at, words}};
  if (bsp) {
    for (uint32_t b = first; b < *end; ++b) *got = std::min(*got, p.VersionOf(b));
    RDMABATCH_RETURN_IF_ERROR(p.connection->Read({&data, 1}, deadline));
  } else {
    const auto* const before = reinterpret_cast<const uint64_t*>(staging.data());
    const auto* const after = before + (*end - first);
    uint32_t stable = 0;
    while (stable == 0) {
      RDMABATCH_RETURN_IF_ERROR(p.connection->Read(chain, deadline));
      while (stable < *end - first && Stable(before[stable], after[stable])) {
        *got = std::min(*got, before[stable++] / 2);
      }
      if (stable > 0) break;
      RDMABATCH_RETURN_IF_ERROR(Ending(p));
      if (deadline.expired()) return Missed(p, "reading");
    }
    *end = first + stable;
  }
  if (into_region) return Status::Ok();
  const uint64_t bytes = p.BytesOf(first, *end);
  CopyStream(destination, staging.data() + data_at, bytes);
  counters_.copies.AddShared(1);
  counters_.bytes_copied.AddShared(bytes);
  return Status::Ok();
}

}  // namespace rdmabatch
