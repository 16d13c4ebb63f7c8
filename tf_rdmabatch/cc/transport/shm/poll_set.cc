#include "tf_rdmabatch/cc/transport/shm/poll_set.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "tf_rdmabatch/cc/transport/shm/layout.h"

namespace rdmabatch::shm {

Result<std::shared_ptr<PollSet>> PollSet::Create() {
  UniqueFd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) {
    return Status(StatusCode::kResourceExhausted,
                  std::string("cannot create an eventfd: ") + std::strerror(errno));
  }
  return std::shared_ptr<PollSet>(new PollSet(std::move(fd)));
}

PollSet::PollSet(UniqueFd event_fd)
    : event_fd_(std::move(event_fd)), owner_(getpid()), sleep_number_(kFirstSleep) {}

bool PollSet::forked() const { return getpid() != owner_; }

void PollSet::Add(ShmEndpoint* endpoint) {
  std::lock_guard<std::mutex> lock(mutex_);
  endpoints_.push_back(endpoint);
  version_.fetch_add(1);
}

void PollSet::Remove(ShmEndpoint* endpoint) {
  if (forked()) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    endpoints_.erase(std::remove(endpoints_.begin(), endpoints_.end(), endpoint), endpoints_.end());
    version_.fetch_add(1);
  }
  // A poll that began after the line above sees the new version.
  const uint64_t poll = polling_.load();
  while (poll % 2 == 1 && polling_.load() == poll) std::this_thread::yield();
}

}  // namespace rdmabatch::shm
