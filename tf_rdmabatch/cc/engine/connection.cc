#include "tf_rdmabatch/cc/engine/connection.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "tf_rdmabatch/cc/engine/engine.h"

namespace rdmabatch {
namespace {

std::atomic<uint64_t> next_id{1};

// Most peers answer a good-bye at once.
constexpr int kCloseYields = 64;

Status ClosedHere() { return {StatusCode::kCancelled, "closed by this side"}; }

}  // namespace

Region::~Region() {
  for (auto& [transport, memory] : registrations_) transport->Deregister(memory);
}

std::string PeerInfo::ToString() const {
  return (name.empty() ? "peer" : name) + " (" + address + ", pid " + std::to_string(pid) + ")";
}

Connection::Connection(Engine* engine)
    : engine_(engine),
      id_(next_id.fetch_add(1)),
      max_message_bytes_(engine->options().max_message_bytes),
      sink_(engine->sink()) {}

Connection::~Connection() = default;

void Connection::Release(SlotHold hold) {
  if (hold.lane < lanes_.size()) lanes_[hold.lane]->Release(hold.slot);
}

Status Connection::status() const {
  std::lock_guard<std::mutex> lock(status_mutex_);
  return status_;
}

CounterValues Connection::counters() const {
  CounterValues values;
  for (const auto& lane : lanes_) values += lane->counters();
  values.bytes_read += direct_read_bytes_.load(std::memory_order_relaxed);
  values.bytes_written += direct_write_bytes_.load(std::memory_order_relaxed);
  values.copies += direct_reads_.load(std::memory_order_relaxed) +
                   direct_writes_.load(std::memory_order_relaxed);
  values.bytes_copied += direct_read_bytes_.load(std::memory_order_relaxed) +
                         direct_write_bytes_.load(std::memory_order_relaxed);
  return values;
}

uint64_t Connection::memory_bytes() const {
  uint64_t bytes = 0;
  for (const auto& lane : lanes_) bytes += lane->memory_bytes();
  return bytes;
}

Result<std::string> Connection::Export(const Region& region) {
  if (closed()) return status();
  if (region.access() == Access::kLocal) {
    return Status(StatusCode::kPermissionDenied,
                  "a local region cannot be exported: allocate it with read or write access");
  }
  const LocalMemory* memory = region.RegisteredWith(transport_.get());
  if (memory == nullptr) {
    return Status(StatusCode::kInvalidArgument, "the region belongs to another engine");
  }
  ByteWriter writer;
  writer.U64(memory->bytes);
  writer.U8(static_cast<uint8_t>(region.access()));
  writer.U16(static_cast<uint16_t>(lanes_.size()));
  for (const auto& lane : lanes_) {
    auto descriptor = lane->endpoint()->Export(*memory);
    if (!descriptor.ok()) return descriptor.status();
    writer.String(*descriptor, kMaxDescriptorBytes);
  }
  return writer.Take();
}

Result<RemoteRegion> Connection::Import(const std::string& descriptor) {
  if (closed()) return status();
  ByteReader reader(descriptor);
  RemoteRegion region;
  region.bytes = reader.U64();
  const auto access = static_cast<Access>(reader.U8());
  region.readable = access == Access::kRemoteRead || access == Access::kRemoteReadWrite;
  region.writable = access == Access::kRemoteWrite || access == Access::kRemoteReadWrite;
  if (reader.U16() != lanes_.size()) reader.Fail();
  for (size_t i = 0; i < lanes_.size() && reader.ok(); ++i) {
    const std::string one(reader.String(kMaxDescriptorBytes));
    if (!reader.ok()) break;
    auto memory = lanes_[i]->endpoint()->Import(one);
    if (!memory.ok()) return memory.status();
    if (memory->bytes < region.bytes) reader.Fail();
    region.lanes.push_back(*memory);
  }
  if (!reader.done()) {
    return Status(StatusCode::kDataLoss, "not the descriptor of a region of this connection");
  }
  return region;
}

Status Connection::Activate() {
  for (const auto& lane : lanes_) lane->Activate();
  bool was_closed;
  {
    std::lock_guard<std::mutex> lock(status_mutex_);
    active_.store(true, std::memory_order_release);
    was_closed = closed();
  }
  if (was_closed) {
    sink_->OnClosed(*this, status());
    return status();
  }
  for (const auto& lane : lanes_) RDMABATCH_RETURN_IF_ERROR(lane->status());
  return Status::Ok();
}

// Whoever comes first says why; everybody who waits learns it.
void Connection::Fail(const Status& reason) {
  // Once this side closes, what the peer's reaction looks like is not the reason.
  const Status status = closing_.load(std::memory_order_acquire) ? ClosedHere() : reason;
  bool active;
  {
    std::lock_guard<std::mutex> lock(status_mutex_);
    if (closed_.load(std::memory_order_relaxed)) return;
    status_ = Named(status);
    closed_.store(true, std::memory_order_release);
    active = active_.load(std::memory_order_relaxed);
  }
  for (const auto& lane : lanes_) lane->Fail(status);
  if (bootstrap_ != nullptr) bootstrap_->Shutdown();
  // Until it is active it is nobody's, or Activate tells the sink.
  if (active) sink_->OnClosed(*this, this->status());
  engine_->Retire(this);
}

// The lane may be locked by this very thread: the progress thread tells everybody else. A lane that
// fails before is the handshake's matter, which may go on with another transport.
void Connection::OnLaneFailed(const Status& status) {
  if (!active_.load(std::memory_order_acquire)) return;
  std::shared_ptr<Connection> self = weak_from_this().lock();
  if (self != nullptr && !closed() && !ending()) engine_->FailLater(std::move(self), status);
}

Status Connection::Named(const Status& status) const {
  return {status.code(), "the connection to " + peer_.ToString() + " ended: " + status.message()};
}

Status Connection::FailureOf(const Lane& lane) const {
  if (closed()) return status();
  // The peer may react to a close of this side before it is complete.
  if (closing_.load(std::memory_order_acquire)) return Named(ClosedHere());
  return Named(lane.status());
}

void Connection::Close() {
  const Deadline deadline = Deadline::After(kCloseSeconds);
  BeginClose(deadline);
  FinishClose(deadline);
}

void Connection::BeginClose(Deadline deadline) {
  if (closed() || closing_.exchange(true, std::memory_order_acq_rel)) return;
  for (const auto& lane : lanes_) {
    while (!lane->Flush() && !deadline.expired()) std::this_thread::yield();
  }
  if (bootstrap_ != nullptr) (void)bootstrap_->SendFrame(ByeFrame(), deadline);
}

// A completed request need not have arrived (iWARP completes a SEND once it is sent), and the
// endpoint must live until it has: the peer ends the bootstrap connection when it took everything.
void Connection::FinishClose(Deadline deadline) {
  if (bootstrap_ != nullptr && established()) {
    for (int tries = 0; !ending() && !closed() && !deadline.expired(); ++tries) {
      if (tries < kCloseYields) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    }
  }
  Fail(ClosedHere());
}

void Connection::Leave(Deadline deadline) {
  BeginClose(deadline);
  FinishClose(Deadline::After(0));
}

std::string Connection::ByeFrame() {
  ByteWriter writer;
  writer.String(kBye, kMaxByeBytes);
  writer.U16(static_cast<uint16_t>(lanes_.size()));
  for (const auto& lane : lanes_) writer.U64(lane->announced());
  return writer.Take();
}

Result<std::vector<uint64_t>> Connection::ParseBye(std::string_view frame) const {
  ByteReader reader(frame);
  if (reader.String(kMaxByeBytes) != kBye || reader.U16() != lanes_.size()) reader.Fail();
  std::vector<uint64_t> announced(lanes_.size());
  for (uint64_t& count : announced) count = reader.U64();
  if (!reader.done()) {
    return Status(StatusCode::kDataLoss, "unexpected bytes on the bootstrap connection");
  }
  return announced;
}

bool Connection::Drained(const std::vector<uint64_t>& announced) const {
  if (closed()) return true;
  for (size_t i = 0; i < announced.size(); ++i) {
    if (!lanes_[i]->failed() && lanes_[i]->batches_taken() < announced[i]) return false;
  }
  return true;
}

}  // namespace rdmabatch
