#include "tf_rdmabatch/cc/transport/tcp/link.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>

namespace rdmabatch::tcp {

const Failure kClosedHere{StatusCode::kFailedPrecondition, "the endpoint was closed"};
const Failure kPeerGone{StatusCode::kUnavailable, "the peer closed the connection or died"};
const Failure kCutOff{StatusCode::kUnavailable,
                      "the connection ended within a message: the peer died or was cut off"};
const Failure kSilent{StatusCode::kUnavailable,
                      "the peer's host does not answer: it died or the network is down"};
const Failure kBadFrame{StatusCode::kDataLoss, "the peer sent bytes that are no frame"};
const Failure kForged{StatusCode::kDataLoss,
                      "what came was changed on its way, or is not the peer's (TLS)"};
const Failure kOutOfReach{StatusCode::kDataLoss,
                          "the peer asked for memory outside a region or its access rights"};
const Failure kTooManyReads{StatusCode::kDataLoss,
                            "the peer has more reads outstanding than it announced"};
const Failure kRegionGone{StatusCode::kUnavailable,
                          "the peer uses a region that was given up meanwhile"};

void Link::Break(const Failure& failure) {
  const Failure* none = nullptr;
  if (failure_.compare_exchange_strong(none, &failure)) shutdown(socket(), SHUT_RDWR);
}

Status Link::FailureStatus() const {
  const Failure* failed = failure();
  return failed == nullptr ? Status::Ok() : Status(failed->code, failed->message);
}

Status Link::Watch(void* tag) {
  tag_ = tag;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = tag;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, socket(), &event) == 0) return Status::Ok();
  return {StatusCode::kResourceExhausted,
          "watching a connection: " + std::generic_category().message(errno)};
}

void Link::WatchForRoom(bool want) {
  epoll_event event{};
  event.events = EPOLLIN | (want ? EPOLLOUT : 0u);
  event.data.ptr = tag_;
  // Fails when the endpoint is no longer watched, which is when it is broken.
  (void)epoll_ctl(epoll_, EPOLL_CTL_MOD, socket(), &event);
}

void Link::Unwatch() { (void)epoll_ctl(epoll_, EPOLL_CTL_DEL, socket(), nullptr); }

}  // namespace rdmabatch::tcp
