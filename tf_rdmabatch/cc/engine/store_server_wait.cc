// Waiting for the contributions of a step.
#include <algorithm>

#include "tf_rdmabatch/cc/engine/store_server.h"

namespace rdmabatch {
namespace {

// Collect is woken once so many blocks are complete, not for each.
constexpr uint32_t kBlocksPerWake = 16;

std::string Number(uint64_t number) { return std::to_string(number); }

}  // namespace

// Every block of a step completes once, or is given up, and none of a later step before: so the
// number of blocks that did so far says whether a step is complete.
void ParameterServer::Impl::WhenComplete(ServedParameter& p, std::shared_ptr<Waiter> waiter) {
  const uint64_t target = p.complete_at.load(std::memory_order_seq_cst);
  {
    std::lock_guard<std::mutex> lock(p.waiting_mutex);
    p.waiting.Add(target, std::move(waiter));
    p.waiting_at.store(p.waiting.next(), std::memory_order_seq_cst);
  }
  // Whatever happened before the waiter was in the list.
  EndReached(p);
  EndHopeless(p);
}

void ParameterServer::Impl::EndReached(ServedParameter& p) {
  WaitList::Waiters waiters;
  {
    std::lock_guard<std::mutex> lock(p.waiting_mutex);
    waiters = p.waiting.Take(p.completed_blocks.load(std::memory_order_seq_cst));
    p.waiting_at.store(p.waiting.next(), std::memory_order_seq_cst);
  }
  EndAll(waiters, Status::Ok());
}

void ParameterServer::Impl::EndWaiters(ServedParameter& p, const Status& status) {
  WaitList::Waiters waiters;
  {
    std::lock_guard<std::mutex> lock(p.waiting_mutex);
    waiters = p.waiting.Take();
  }
  EndAll(waiters, status);
}

void ParameterServer::Impl::EndHopeless(ServedParameter& p) {
  {
    std::lock_guard<std::mutex> lock(p.waiting_mutex);
    if (p.waiting.empty()) return;
  }
  const uint64_t step = p.step.load(std::memory_order_acquire);
  for (uint32_t b = 0; b < p.info.blocks; ++b) {
    if (p.blocks[b].completed.load(std::memory_order_acquire) == step) continue;
    const Status hopeless = Hopeless(p, b);
    // It may have completed meanwhile, of a step that was collected then.
    if (!hopeless.ok() && p.blocks[b].completed.load(std::memory_order_acquire) < step) {
      return EndWaiters(p, hopeless);
    }
  }
}

Status ParameterServer::Impl::WaitComplete(ServedParameter& p, uint32_t block, uint64_t step,
                                           Deadline deadline) {
  if (p.blocks[block].completed.load(std::memory_order_acquire) == step) return Status::Ok();
  Status waited = SleepUntilComplete(p, block, step, deadline);
  p.wake_at.store(~uint64_t{0}, std::memory_order_relaxed);
  return waited;
}

Status ParameterServer::Impl::SleepUntilComplete(ServedParameter& p, uint32_t block, uint64_t step,
                                                 Deadline deadline) {
  const auto complete = [&](uint32_t b) {
    return p.blocks[b].completed.load(std::memory_order_acquire) == step;
  };
  const uint32_t end = block + std::min(p.info.blocks - block, kBlocksPerWake);
  while (!complete(block)) {
    const uint64_t key = p.progress.Prepare();
    // However many of these blocks complete from here on, the last of them reaches wake_at.
    const uint64_t before = p.completed_blocks.load(std::memory_order_seq_cst);
    uint32_t missing = 0;
    for (uint32_t b = block; b < end; ++b) missing += complete(b) ? 0 : 1;
    p.wake_at.store(before + missing, std::memory_order_seq_cst);
    Status ending = Hopeless(p, block);
    if (missing == 0 || !ending.ok() ||
        p.completed_blocks.load(std::memory_order_seq_cst) >= before + missing) {
      p.progress.Cancel();
      if (ending.ok() || complete(block)) continue;
      return ending;
    }
    if (!p.progress.Wait(key, deadline) && !complete(block)) {
      return {StatusCode::kDeadlineExceeded, "collecting step " + Number(step) +
                                                 " of parameter \"" + p.info.spec.name +
                                                 "\" missed its deadline: " + Missing(p, block)};
    }
  }
  return Status::Ok();
}

Status ParameterServer::Impl::Hopeless(ServedParameter& p, uint32_t block) {
  if (cancelled_.load(std::memory_order_seq_cst)) {
    return {StatusCode::kCancelled, "the parameter server was cancelled"};
  }
  const auto lost = [&](const std::string& who, const Status& why) {
    return Status(StatusCode::kUnavailable,
                  "parameter \"" + p.info.spec.name + "\" lost " + who + ": " + why.message());
  };
  std::lock_guard<std::mutex> lock(p.members);
  size_t unknown = 0;
  size_t live = 0;
  for (uint32_t c = 0; c < p.contributors.size(); ++c) {
    const Contributor& contributor = p.contributors[c];
    if (contributor.connection.load(std::memory_order_relaxed) == 0) {
      ++unknown;
    } else if (contributor.ended.ok()) {
      ++live;
    } else if (!p.Contributed(block, c)) {
      return lost("contributor " + Number(c), contributor.ended);
    }
  }
  // A worker that died before its first push might be any contributor that is not known yet. Said
  // once, since it might also have been a mere reader.
  const size_t idle = p.openers.size() > live ? p.openers.size() - live : 0;
  if (p.lost.empty() || unknown <= idle) return Status::Ok();
  Status status = lost("a worker that had not contributed yet", p.lost.front());
  p.lost.clear();
  return status;
}

std::string ParameterServer::Impl::Missing(ServedParameter& p, uint32_t block) {
  constexpr uint32_t kNamed = 4;
  std::string text;
  uint32_t missing = 0;
  std::lock_guard<std::mutex> lock(p.members);
  for (uint32_t c = 0; c < p.contributors.size(); ++c) {
    if (p.Contributed(block, c) || ++missing > kNamed) continue;
    const std::string& name = p.contributors[c].name;
    text += (text.empty() ? "" : ", ") + std::string("contributor ") + Number(c) +
            (name.empty() ? "" : " of " + name);
  }
  if (missing > kNamed) text += " and " + Number(missing - kNamed) + " more";
  return "no block " + Number(block) + " from " + text;
}

}  // namespace rdmabatch
