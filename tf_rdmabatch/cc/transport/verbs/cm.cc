#include "tf_rdmabatch/cc/transport/verbs/cm.h"

#include <fcntl.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace rdmabatch {
namespace verbs {
namespace {

// Poll in steps, so that a deadline far away still fits an int of milliseconds.
constexpr int kMaxPollMs = 60 * 1000;

StatusCode CodeOf(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
      return StatusCode::kPermissionDenied;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return StatusCode::kResourceExhausted;
    case EINVAL:
      return StatusCode::kInvalidArgument;
    default:
      return StatusCode::kUnavailable;
  }
}

}  // namespace

Status ErrnoStatus(const char* what, int error) {
  char buffer[128];
  // The GNU variant, which returns the text.
  const char* text = strerror_r(error, buffer, sizeof(buffer));
  return {CodeOf(error), std::string(what) + " failed: " + text};
}

Result<CmChannel> CmChannel::Create() {
  CmEventChannel channel(Lib().cm.create_event_channel());
  if (channel == nullptr) {
    const int error = errno;
    Status status = ErrnoStatus("opening /dev/infiniband/rdma_cm", error);
    if (error == ENOENT || error == ENODEV) {
      return Status(status.code(), status.message() + "; load the module: modprobe rdma_ucm");
    }
    return status;
  }
  const int flags = fcntl(channel->fd, F_GETFL);
  if (flags < 0 || fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return ErrnoStatus("fcntl on an rdma_cm channel", errno);
  }
  return CmChannel(std::move(channel));
}

Result<CmId> CmChannel::CreateId() {
  rdma_cm_id* id = nullptr;
  if (Lib().cm.create_id(channel_.get(), &id, nullptr, RDMA_PS_TCP) != 0) {
    return ErrnoStatus("rdma_create_id", errno);
  }
  return CmId(id);
}

Status CmChannel::Adopt(rdma_cm_id* id) {
  if (Lib().cm.migrate_id(id, channel_.get()) != 0) return ErrnoStatus("rdma_migrate_id", errno);
  return Status::Ok();
}

Result<CmEvent> CmChannel::TryNext() {
  rdma_cm_event* event = nullptr;
  if (Lib().cm.get_cm_event(channel_.get(), &event) == 0) return CmEvent(event);
  if (errno == EAGAIN || errno == EINTR) return CmEvent();
  return ErrnoStatus("rdma_get_cm_event", errno);
}

Result<CmEvent> CmChannel::Next(Deadline deadline) {
  for (;;) {
    Result<CmEvent> event = TryNext();
    if (!event.ok() || *event != nullptr) return event;
    const int wait_ms = deadline.RemainingMs(kMaxPollMs);
    if (wait_ms == 0) return Status(StatusCode::kDeadlineExceeded, "no rdma_cm event in time");
    pollfd entry{fd(), POLLIN, 0};
    if (poll(&entry, 1, wait_ms) < 0 && errno != EINTR) return ErrnoStatus("poll", errno);
  }
}

Status CmChannel::Expect(rdma_cm_event_type type, const char* what, Deadline deadline) {
  Result<CmEvent> event = Next(deadline);
  if (!event.ok()) {
    return {event.status().code(), std::string(what) + ": " + event.status().message()};
  }
  const rdma_cm_event& got = **event;
  if (got.event == type && got.status == 0) return Status::Ok();
  const StatusCode code = got.event == RDMA_CM_EVENT_REJECTED ? StatusCode::kPermissionDenied
                                                              : StatusCode::kUnavailable;
  return {code, std::string(what) + ": " + Lib().cm.event_str(got.event) + " (status " +
                    std::to_string(got.status) + ")"};
}

}  // namespace verbs
}  // namespace rdmabatch
