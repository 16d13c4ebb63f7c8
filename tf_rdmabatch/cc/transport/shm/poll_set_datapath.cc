#include <errno.h>
#include <unistd.h>

#include <algorithm>

#include "tf_rdmabatch/cc/transport/shm/layout.h"
#include "tf_rdmabatch/cc/transport/shm/poll_set.h"
#include "tf_rdmabatch/cc/transport/shm/shm_endpoint.h"

namespace rdmabatch::shm {
namespace {

// What one endpoint can take of a poll before the others have their turn.
constexpr size_t kMaxPerVisit = 16;

}  // namespace

// While it lives, every endpoint in `polled_` does too.
class PollSet::Polling {
 public:
  explicit Polling(PollSet* set)
      : set_(set), poll_(set->polling_.load(std::memory_order_relaxed) + 1) {
    set->polling_.store(poll_);
    if (set->version_.load() != set->polled_version_) set->Refresh();
  }
  Polling(const Polling&) = delete;
  Polling& operator=(const Polling&) = delete;
  ~Polling() { set_->polling_.store(poll_ + 1, std::memory_order_release); }

 private:
  PollSet* const set_;
  const uint64_t poll_;
};

void PollSet::Refresh() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    polled_ = endpoints_;
    polled_version_ = version_.load();
  }
  if (next_ >= polled_.size()) next_ = 0;
  for (ShmEndpoint* endpoint : polled_) endpoint->SetSleeping(asleep_ ? sleep_number_ : 0);
}

size_t PollSet::Poll(Span<Completion> completions) {
  Polling polling(this);
  size_t taken = 0;
  for (size_t visits = polled_.size(); visits > 0 && taken < completions.size(); --visits) {
    ShmEndpoint* endpoint = polled_[next_];
    next_ = next_ + 1 == polled_.size() ? 0 : next_ + 1;
    taken += endpoint->TakeImmediates(
        completions.subspan(taken).first(std::min(kMaxPerVisit, completions.size() - taken)));
  }
  return taken;
}

void PollSet::PrepareSleep() {
  Polling polling(this);
  asleep_ = true;
  if (++sleep_number_ < kFirstSleep) sleep_number_ = kFirstSleep;
  for (ShmEndpoint* endpoint : polled_) endpoint->SetSleeping(sleep_number_);
}

void PollSet::FinishSleep() {
  Polling polling(this);
  asleep_ = false;
  for (ShmEndpoint* endpoint : polled_) endpoint->SetSleeping(0);
  uint64_t events;
  while (read(event_fd_.get(), &events, sizeof(events)) < 0 && errno == EINTR) continue;
}

}  // namespace rdmabatch::shm
