#include "tf_rdmabatch/cc/engine/control.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <cstring>
#include <utility>

#include "tf_rdmabatch/cc/base/log.h"
#include "tf_rdmabatch/cc/base/thread.h"
#include "tf_rdmabatch/cc/engine/engine.h"

namespace rdmabatch {
namespace {

// A peer that closes says so just before; the end of its devices may be noticed first.
constexpr double kByeSeconds = 0.05;
// Handshakes at a time; more peers wait in the listener's queue.
constexpr size_t kMaxAccepting = 32;
// Kinds of refusals that are remembered; then the log has enough of them.
constexpr size_t kMaxRefusals = 64;

}  // namespace

Status ControlThread::Start() {
  wake_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) {
    return {StatusCode::kResourceExhausted, std::string("eventfd: ") + std::strerror(errno)};
  }
  return StartThread(
      "rdmabatch-ctrl", [this] { Run(); }, &thread_);
}

void ControlThread::Stop() {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_release);
  Wake();
  thread_.join();
  ReapAccepting(true);
  std::lock_guard<std::mutex> lock(mutex_);
  listeners_.clear();
}

Result<std::string> ControlThread::Listen(const std::string& address) {
  auto listener = ListenTcp(address, engine_->ports_);
  if (!listener.ok()) return listener.status();
  std::string bound = BoundAddress(listener->get());
  {
    std::lock_guard<std::mutex> lock(mutex_);
    listeners_.push_back(std::move(*listener));
  }
  Wake();
  return bound;
}

void ControlThread::Wake() {
  const uint64_t one = 1;
  while (write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) continue;
}

void ControlThread::Run() {
  while (!stop_.load(std::memory_order_acquire)) {
    WatchOnce();
    ReapAccepting(false);
  }
}

void ControlThread::WatchOnce() {
  std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}};
  size_t listeners = 0;
  if (accepting_.size() < kMaxAccepting) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const UniqueFd& listener : listeners_) fds.push_back({listener.get(), POLLIN, 0});
    listeners = listeners_.size();
  }
  const auto connections = engine_->connections();
  std::vector<const std::shared_ptr<Connection>*> owners;
  for (const auto& connection : connections) {
    if (!connection->established() || connection->closed() || connection->ending()) continue;
    fds.push_back({connection->bootstrap_->fd(), POLLIN, 0});
    owners.push_back(&connection);
    for (const auto& lane : connection->lanes_) {
      const int fd = lane->endpoint()->control_fd();
      if (fd < 0) continue;
      fds.push_back({fd, POLLIN, 0});
      owners.push_back(&connection);
    }
  }
  // Ended handshakes are reaped now and then.
  if (poll(fds.data(), fds.size(), accepting_.empty() ? 1000 : 20) <= 0) return;
  uint64_t drained;
  if (fds[0].revents != 0 && read(wake_.get(), &drained, sizeof(drained)) < 0) drained = 0;
  for (size_t i = 1; i <= listeners; ++i) {
    if (fds[i].revents != 0) AcceptPeer(fds[i].fd);
  }
  for (size_t i = 0; i < owners.size(); ++i) {
    if (fds[1 + listeners + i].revents != 0) CheckPeer(*owners[i]);
  }
}

void ControlThread::CheckPeer(const std::shared_ptr<Connection>& connection) {
  if (connection->closed() || connection->ending()) return;
  Status lane_status;
  for (const auto& lane : connection->lanes_) {
    if (lane_status.ok()) lane_status = lane->endpoint()->CheckControl();
  }
  const Deadline wait = Deadline::After(lane_status.ok() ? 0 : kByeSeconds);
  auto frame = connection->bootstrap_->ReceiveFrame(wait, Connection::kMaxByeBytes);
  Status status;
  std::vector<uint64_t> announced;
  if (frame.ok()) {
    auto bye = connection->ParseBye(*frame);
    status = bye.ok() ? Status(StatusCode::kUnavailable, "the peer closed it") : bye.status();
    if (bye.ok()) announced = std::move(*bye);
  } else if (frame.status().code() != StatusCode::kDeadlineExceeded) {
    status = {StatusCode::kUnavailable,
              "the peer died or was cut off: " + frame.status().message()};
  } else if (!lane_status.ok()) {
    status = lane_status;
  } else {
    return;
  }
  // Its level-triggered descriptors must not wake this thread again.
  connection->SetEnding();
  engine_->FailLater(connection, status, std::move(announced));
}

void ControlThread::AcceptPeer(int listener) {
  auto socket = AcceptTcp(listener, Deadline::After(0));
  if (!socket.ok()) {
    if (socket.status().code() == StatusCode::kResourceExhausted) {
      Log(LogLevel::kWarning, socket.status().message());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return;
  }
  Accepting& accepting = accepting_.emplace_back();
  const Status started = StartThread(
      "rdmabatch-greet",
      [this, &accepting, s = std::move(*socket)]() mutable {
        Greet(std::move(s));
        accepting.done.store(true, std::memory_order_release);
        Wake();
      },
      &accepting.thread);
  if (started.ok()) return;
  accepting_.pop_back();
  Log(LogLevel::kError, "refused a peer: " + started.message());
}

void ControlThread::Greet(BootstrapSocket socket) {
  const std::string address = socket.peer();
  const Deadline deadline = Deadline::After(engine_->options().handshake_timeout_s);
  auto connection = engine_->Establish(std::move(socket), /*active=*/false, deadline);
  if (connection.ok()) return;
  Log(IsNews(address, connection.status()) ? LogLevel::kWarning : LogLevel::kDebug,
      "refused " + address + ": " + connection.status().message());
  // Who sees it counted finds it in the log.
  engine_->refused_.fetch_add(1, std::memory_order_release);
}

// A port scanner or a health check comes again and again: each host's mistake is told once.
bool ControlThread::IsNews(const std::string& address, const Status& why) {
  const std::string host = address.substr(0, address.rfind(':'));
  std::lock_guard<std::mutex> lock(mutex_);
  return refusals_.size() < kMaxRefusals && refusals_.emplace(host, why.code()).second;
}

void ControlThread::ReapAccepting(bool all) {
  for (auto it = accepting_.begin(); it != accepting_.end();) {
    if (all || it->done.load(std::memory_order_acquire)) {
      it->thread.join();
      it = accepting_.erase(it);
    } else {
      ++it;
    }
  }
}

}  // namespace rdmabatch
