// The control path of ShmEndpoint.
#include "tf_rdmabatch/cc/transport/shm/shm_endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <utility>

#include "tf_rdmabatch/cc/transport/shm/unix_socket.h"

namespace rdmabatch::shm {

const Failure kClosedHere{StatusCode::kFailedPrecondition, "the endpoint was closed"};
const Failure kPeerGone{StatusCode::kUnavailable, "the peer closed the connection or died"};
const Failure kCorruptRing{StatusCode::kDataLoss, "the peer corrupted the ring of immediates"};
const Failure kBadMessage{StatusCode::kDataLoss,
                          "the peer sent a control message that does not parse"};
const Failure kLostDescriptors{
    StatusCode::kResourceExhausted,
    "descriptors from the peer were lost: raise the limit of open files (ulimit -n)"};
const Failure kOutOfReach{StatusCode::kOutOfRange,
                          "a work request is outside the peer's memory or its access rights"};

namespace {

constexpr double kExportSeconds = 2;  // for the peer to make room in the socket

Status CheckOptions(const EndpointOptions& options) {
  if (options.counters == nullptr)
    return {StatusCode::kInvalidArgument, "EndpointOptions::counters is required"};
  if (options.send_queue_depth == 0 || options.send_queue_depth > kMaxQueueDepth) {
    return {StatusCode::kInvalidArgument,
            "send_queue_depth must be 1 to " + std::to_string(kMaxQueueDepth)};
  }
  if (options.max_receives == 0 || options.max_receives > kMaxReceives) {
    return {StatusCode::kInvalidArgument,
            "max_receives must be 1 to " + std::to_string(kMaxReceives)};
  }
  return Status::Ok();
}

// Writing to it must not block, whatever a peer passed.
bool IsEventFd(int fd) {
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  char target[32] = {};
  const ssize_t length = readlink(link.c_str(), target, sizeof(target) - 1);
  if (length < 0 || std::strcmp(target, "anon_inode:[eventfd]") != 0) return false;
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

Status SendHello(int socket, const Hello& hello, int control_fd, int event_fd) {
  const int fds[] = {control_fd, event_fd};
  auto sent = Send(socket, Pack(hello), fds);
  if (!sent.ok()) return sent.status();
  return *sent ? Status::Ok() : Status(StatusCode::kUnavailable, "the peer's socket is full");
}

ControlPage* PageOf(const Segment& segment) {
  return reinterpret_cast<ControlPage*>(segment.data());
}

}  // namespace

Result<std::unique_ptr<Endpoint>> ShmEndpoint::Create(std::shared_ptr<PollSet> poll_set,
                                                      UniqueFd socket, const Offer& offer,
                                                      bool accepting,
                                                      const EndpointOptions& options,
                                                      Deadline deadline) {
  RDMABATCH_RETURN_IF_ERROR(CheckOptions(options));
  auto own = Segment::Create(ControlBytes(options.max_receives));
  if (!own.ok()) return own.status();
  auto* page = new (own->data()) ControlPage;
  page->head.store(options.first_index);
  page->tail.store(options.first_index);
  page->sleeping.store(kNotYetPolled);

  Hello hello;
  if (accepting) hello.accept_secret = offer.accept_secret;
  hello.max_receives = options.max_receives;
  hello.first_index = options.first_index;
  if (accepting)
    RDMABATCH_RETURN_IF_ERROR(SendHello(socket.get(), hello, own->fd(), poll_set->event_fd()));
  auto message = ReceiveBefore(socket.get(), deadline);
  if (!message.ok()) return message.status();
  Hello peer;
  if (!Unpack(message->bytes, &peer) || message->fd_count != 2 ||
      !IsEventFd(message->fds[1].get()) || peer.max_receives == 0 ||
      peer.max_receives > kMaxReceives ||
      (!accepting && peer.accept_secret != offer.accept_secret)) {
    return Status(StatusCode::kDataLoss,
                  "the peer's hello does not parse, or is of another version");
  }
  auto peers = Segment::Map(message->fds[0].release(), ControlBytes(peer.max_receives), true);
  if (!peers.ok()) return peers.status();
  if (!accepting)
    RDMABATCH_RETURN_IF_ERROR(SendHello(socket.get(), hello, own->fd(), poll_set->event_fd()));

  // Random, so that a descriptor that was meant for another endpoint is not taken for one of this.
  uint64_t first_region_id = 0;
  if (getrandom(&first_region_id, sizeof(first_region_id), 0) != sizeof(first_region_id)) {
    return Status(StatusCode::kInternal, "getrandom failed");
  }
  std::unique_ptr<ShmEndpoint> endpoint(
      new ShmEndpoint(std::move(poll_set), std::move(socket), std::move(*own), std::move(*peers),
                      std::move(message->fds[1]), options, peer, first_region_id));
  endpoint->poll_set_->Add(endpoint.get());
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

ShmEndpoint::ShmEndpoint(std::shared_ptr<PollSet> poll_set, UniqueFd socket, Segment own,
                         Segment peer, UniqueFd peer_event_fd, const EndpointOptions& options,
                         const Hello& peer_hello, uint64_t first_region_id)
    : poll_set_(std::move(poll_set)),
      socket_(std::move(socket)),
      own_segment_(std::move(own)),
      peer_segment_(std::move(peer)),
      peer_event_fd_(std::move(peer_event_fd)),
      own_page_(PageOf(own_segment_)),
      peer_page_(PageOf(peer_segment_)),
      counters_(options.counters),
      head_(peer_hello.first_index),
      peer_tail_(peer_hello.first_index),
      peer_limit_(peer_hello.max_receives),
      peer_mask_(RingSize(peer_hello.max_receives) - 1),
      send_queue_depth_(options.send_queue_depth),
      first_chain_(options.first_index),
      last_chain_(options.first_index),
      chain_mask_(RingSize(options.send_queue_depth) - 1),
      chains_(new Chain[RingSize(options.send_queue_depth)]),
      imported_(new Imported[kMaxRegions]),
      tail_(options.first_index),
      limit_(options.max_receives),
      mask_(RingSize(options.max_receives) - 1),
      context_(options.context),
      next_region_id_(first_region_id) {}

ShmEndpoint::~ShmEndpoint() {
  Close();
  poll_set_->Remove(this);
}

void ShmEndpoint::Break(const Failure& failure) {
  const Failure* none = nullptr;
  if (!failure_.compare_exchange_strong(none, &failure)) return;
  if (!poll_set_->forked()) shutdown(socket_.get(), SHUT_RDWR);
}

void ShmEndpoint::Close() { Break(kClosedHere); }

Status ShmEndpoint::FailureStatus() const {
  const Failure* failed = failure();
  return failed == nullptr ? Status::Ok() : Status(failed->code, failed->message);
}

Status ShmEndpoint::CheckControl() {
  std::lock_guard<std::mutex> lock(control_mutex_);
  TakeArrived();
  return FailureStatus();
}

void ShmEndpoint::TakeArrived() {
  Message message;
  while (failure() == nullptr) {
    auto received = Receive(socket_.get(), &message);
    if (!received.ok()) {
      const StatusCode code = received.status().code();
      Break(code == StatusCode::kDataLoss            ? kBadMessage
            : code == StatusCode::kResourceExhausted ? kLostDescriptors
                                                     : kPeerGone);
      return;
    }
    if (!*received) return;
    Region region;
    if (!Unpack(message.bytes, &region) || message.fd_count != 1 ||
        peers_exports_.size() == kMaxRegions || peers_exports_.count(region.id) != 0) {
      Break(kBadMessage);
      return;
    }
    auto segment = Segment::Map(message.fds[0].release(), region.bytes, region.writable != 0);
    peers_exports_.emplace(region.id, Exported{region, std::move(segment), kMaxRegions});
  }
}

Result<std::string> ShmEndpoint::Export(const LocalMemory& memory) {
  if (memory.access == Access::kLocal || memory.fd < 0 || memory.bytes == 0) {
    return Status(StatusCode::kInvalidArgument, "this memory was not registered for remote access");
  }
  const Deadline deadline = Deadline::After(kExportSeconds);
  while (true) {
    {
      std::lock_guard<std::mutex> lock(control_mutex_);
      TakeArrived();  // so that two peers that export a lot to each other make progress
      RDMABATCH_RETURN_IF_ERROR(FailureStatus());
      if (exported_count_ == kMaxRegions) {
        return Status(StatusCode::kResourceExhausted,
                      "an endpoint exports at most " + std::to_string(kMaxRegions) + " regions");
      }
      Region region;
      region.id = next_region_id_;
      region.bytes = memory.bytes;
      region.writable = memory.access == Access::kRemoteRead ? 0 : 1;
      const int fds[] = {memory.fd};
      std::string bytes = Pack(region);
      auto sent = Send(socket_.get(), bytes, fds);
      if (!sent.ok()) {
        if (sent.status().code() == StatusCode::kUnavailable) Break(kPeerGone);
        return sent.status();
      }
      if (*sent) {
        ++next_region_id_;
        ++exported_count_;
        return bytes;
      }
    }
    if (deadline.expired()) {
      return Status(StatusCode::kDeadlineExceeded,
                    "the peer does not take the regions that are exported to it");
    }
    WaitFor(socket_.get(), true, deadline, 50);
  }
}

Result<RemoteMemory> ShmEndpoint::Import(const std::string& descriptor) {
  Region region;
  if (!Unpack(descriptor, &region)) {
    return Status(StatusCode::kDataLoss,
                  "a region descriptor that does not parse, or of another version");
  }
  std::lock_guard<std::mutex> lock(control_mutex_);
  // The peer's Export returned after the descriptor had reached this socket, so there is nothing to
  // wait for.
  TakeArrived();
  RDMABATCH_RETURN_IF_ERROR(FailureStatus());
  auto found = peers_exports_.find(region.id);
  if (found == peers_exports_.end() || Pack(found->second.region) != descriptor) {
    return Status(StatusCode::kDataLoss,
                  "a region descriptor that the peer did not export on this endpoint");
  }
  Exported& exported = found->second;
  if (!exported.segment.ok()) return exported.segment.status();
  uint8_t* address = exported.segment->data();
  if (exported.index == kMaxRegions) {
    exported.index = imported_count_++;
    imported_[exported.index] = {address, region.bytes, region.writable != 0};
  }
  return RemoteMemory{reinterpret_cast<uint64_t>(address), region.bytes, exported.index, address};
}

}  // namespace rdmabatch::shm
