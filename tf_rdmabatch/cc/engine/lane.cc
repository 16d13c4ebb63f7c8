#include "tf_rdmabatch/cc/engine/lane.h"

#include <utility>

namespace rdmabatch {
namespace {

// A chain: a work request a slot, the freed words, the arrived words. Transfers use what else the
// queue holds.
uint32_t ChainCapacity(const LaneGeometry& mine, const LaneGeometry& peer) {
  return peer.slots + peer.words() + mine.words();
}

constexpr uint32_t kTransferDepth = 128;

}  // namespace

Lane::Lane(const Setup& setup, const EngineOptions& options)
    : index_(setup.index),
      mine_(setup.mine),
      peer_(setup.peer),
      confirm_(setup.confirm),
      window_(options.window == 0 || options.window > setup.peer.slots ? setup.peer.slots
                                                                       : options.window),
      max_batch_(options.max_batch),
      batch_bytes_(options.batch_bytes),
      chains_in_flight_(options.chains_in_flight),
      first_index_(options.first_index),
      host_(setup.host),
      transport_(setup.transport),
      my_layout_(LayoutOf(setup.mine, setup.peer)),
      peer_layout_(LayoutOf(setup.peer, setup.mine)),
      sender_(setup.peer.slots),
      used_(setup.peer.slots),
      chain_(ChainCapacity(setup.mine, setup.peer)),
      word_values_(chain_.size()),
      receiver_(setup.mine.slots),
      holds_(setup.mine.slots) {
  owed_acks_.reserve(mine_.slots);
}

Result<std::unique_ptr<Lane>> Lane::Create(const Setup& setup, const EngineOptions& options) {
  std::unique_ptr<Lane> lane(new Lane(setup, options));
  auto segment = Segment::Create(lane->my_layout_.bytes, options.huge_pages, /*touch=*/false);
  if (!segment.ok()) return segment.status();
  lane->segment_ = std::move(*segment);
  auto memory = setup.transport->RegisterMemory(lane->segment_, Access::kRemoteWrite);
  if (!memory.ok()) return memory.status();
  lane->segment_memory_ = *memory;
  return lane;
}

Lane::~Lane() {
  endpoint_.reset();
  if (segment_memory_.address != nullptr) transport_->Deregister(segment_memory_);
  if (staging_memory_.address != nullptr) transport_->Deregister(staging_memory_);
}

EndpointOptions Lane::MakeEndpointOptions() {
  EndpointOptions options;
  options.context = reinterpret_cast<uint64_t>(this);
  // Two chains of the longest kind fit. Confirming each, every slot of both directions may have its
  // own announcement or acknowledgement outstanding, which takes two entries on devices without
  // WRITE with immediate.
  options.send_queue_depth = 4 * (static_cast<uint32_t>(chain_.size()) + 1) + kTransferDepth;
  // An announcement holds at least one of the peer's slots, an acknowledgement answers one of ours.
  options.max_receives = 2 * (mine_.slots + peer_.slots);
  options.first_index = first_index_;
  options.counters = &counters_;
  return options;
}

// The progress thread may have met the end of the endpoint already.
void Lane::SetEndpoint(std::unique_ptr<Endpoint> endpoint) {
  {
    std::lock_guard<std::mutex> lock(status_mutex_);
    endpoint_ = std::move(endpoint);
  }
  if (failed()) endpoint_->Close();
}

Result<std::string> Lane::ExportSegment() { return endpoint_->Export(segment_memory_); }

Status Lane::ImportSegment(const std::string& descriptor) {
  auto memory = endpoint_->Import(descriptor);
  if (!memory.ok()) return memory.status();
  if (memory->bytes < peer_layout_.bytes) {
    return {StatusCode::kDataLoss, "the peer's lane segment is smaller than its geometry says"};
  }
  peer_memory_ = *memory;
  if (peer_memory_.direct != nullptr) {
    send_base_ = peer_memory_.direct + peer_layout_.slots;
    return Status::Ok();
  }
  auto staging = Segment::Create(uint64_t{peer_.slots} * peer_.slot_bytes);
  if (!staging.ok()) return staging.status();
  staging_ = std::move(*staging);
  auto registered = transport_->RegisterMemory(staging_, Access::kLocal);
  if (!registered.ok()) return registered.status();
  staging_memory_ = *registered;
  send_base_ = staging_.data();
  return Status::Ok();
}

void Lane::Fail(const Status& status) {
  Endpoint* endpoint;
  {
    std::lock_guard<std::mutex> lock(status_mutex_);
    if (failed_.load(std::memory_order_relaxed)) return;
    status_ = status;
    failed_.store(true, std::memory_order_release);
    endpoint = endpoint_.get();
  }
  if (endpoint != nullptr) endpoint->Close();
  writable_.Notify();
  host_->OnLaneFailed(status);
}

// Another thread may have set failed_ and be about to close the endpoint.
void Lane::Quiesce() {
  { const SpinGuard guard(send_flag_); }
  endpoint_->Close();
}

Status Lane::status() const {
  std::lock_guard<std::mutex> lock(status_mutex_);
  return status_;
}

CounterValues Lane::counters() const {
  CounterValues values = counters_.values();
  values += receive_counters_.values();
  return values;
}

void Lane::Violate(const char* what) {
  receive_counters_.refused.Add(1);
  Fail({StatusCode::kDataLoss, std::string("the peer broke the protocol: ") + what});
}

}  // namespace rdmabatch
