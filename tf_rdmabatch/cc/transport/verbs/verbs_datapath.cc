// The hot path of the verbs transport. Nothing here allocates, locks or throws, and the only system
// calls are the device's own (a software device is entered with one a doorbell).
#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tf_rdmabatch/cc/base/bits.h"
#include "tf_rdmabatch/cc/transport/verbs/receive_queue.h"
#include "tf_rdmabatch/cc/transport/verbs/send_queue.h"
#include "tf_rdmabatch/cc/transport/verbs/verbs_endpoint.h"
#include "tf_rdmabatch/cc/transport/verbs/verbs_transport.h"

namespace rdmabatch {
namespace verbs {
namespace {

constexpr int kReceiveBatch = 32;

uint32_t PowerOfTwoAtLeast(uint32_t value) {
  uint32_t power = 1;
  while (power < value) power *= 2;
  return power;
}

}  // namespace

SendQueue::SendQueue(Fabric fabric, const EndpointOptions& options)
    : fabric_(fabric),
      depth_(options.send_queue_depth),
      chain_mask_(PowerOfTwoAtLeast(options.send_queue_depth) - 1),
      counters_(options.counters),
      requests_(size_t{options.send_queue_depth} * (fabric == Fabric::kIwarp ? 2 : 1)),
      entries_(requests_.size()),
      words_(fabric == Fabric::kIwarp ? requests_.size() : 0),
      chains_(chain_mask_ + 1),
      chain_head_(options.first_index),
      chain_tail_(options.first_index),
      after_reads_(options.first_index) {
  for (size_t i = 0; i < requests_.size(); ++i) {
    requests_[i].sg_list = &entries_[i];
    requests_[i].next = i + 1 < requests_.size() ? &requests_[i + 1] : nullptr;
  }
}

inline void SendQueue::Fill(const WorkRequest& request, size_t* used) {
  const bool announces = request.op == OpCode::kWriteImm;
  const bool iwarp = fabric_ == Fabric::kIwarp;
  const int inline_flag = request.inline_data ? IBV_SEND_INLINE : 0;
  if (!announces || !iwarp || request.length != 0) {
    ibv_send_wr& wr = requests_[*used];
    ibv_sge& entry = entries_[*used];
    entry.addr = reinterpret_cast<uint64_t>(request.local);
    entry.length = request.length;
    entry.lkey = request.local_key;
    wr.num_sge = request.length != 0 ? 1 : 0;
    wr.send_flags = static_cast<unsigned>(inline_flag);
    wr.wr.rdma.remote_addr = request.remote;
    wr.wr.rdma.rkey = request.remote_key;
    if (request.op == OpCode::kRead) {
      wr.opcode = IBV_WR_RDMA_READ;
    } else if (announces && !iwarp) {
      wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
      wr.imm_data = htonl(request.immediate);
    } else {
      wr.opcode = IBV_WR_RDMA_WRITE;
    }
    ++*used;
  }
  if (announces && iwarp) {
    ibv_send_wr& wr = requests_[*used];
    ibv_sge& entry = entries_[*used];
    uint32_t& word = words_[*used];
    word = htonl(request.immediate);
    entry.addr = reinterpret_cast<uint64_t>(&word);
    entry.length = sizeof(word);
    entry.lkey = 0;
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_INLINE;
    wr.opcode = IBV_WR_SEND;
    ++*used;
  }
}

inline void SendQueue::FenceReads(Span<const WorkRequest> chain, size_t used) {
  for (const WorkRequest& request : chain) {
    if (request.op == OpCode::kRead) after_reads_ = chain_tail_ + 1;
  }
  const bool outstanding = static_cast<int32_t>(after_reads_ - chain_head_) > 0;
  const bool ends_in_read = chain[chain.size() - 1].op == OpCode::kRead;
  if (outstanding && !ends_in_read) requests_[used - 1].send_flags |= IBV_SEND_FENCE;
}

inline int SendQueue::Ring(size_t used) {
  ibv_send_wr& last = requests_[used - 1];
  last.send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* const rest = std::exchange(last.next, nullptr);
  // Soft-iWARP returns 0 with `bad` set when it drops the rest of a chain; errors may be negative.
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(queue_pair_, requests_.data(), &bad);
  last.next = rest;
  return error != 0 ? error : (bad != nullptr ? ENOMEM : 0);
}

size_t SendQueue::Post(Span<const WorkRequest> chain, const char** error) {
  const uint32_t posted = posted_.load(std::memory_order_relaxed);
  const size_t accepted = std::min<size_t>(chain.size(), depth_ - posted);
  if (accepted < chain.size()) counters_->queue_stalls.Add(1);
  if (accepted == 0) return 0;
  size_t used = 0;
  for (size_t i = 0; i < accepted; ++i) Fill(chain[i], &used);
  if (fabric_ == Fabric::kIwarp) FenceReads(chain.first(accepted), used);
  if (Ring(used) != 0) {
    *error = "the device refused a chain of work requests";
    return 0;
  }
  chains_[chain_tail_++ & chain_mask_] = {chain[accepted - 1].id, static_cast<uint32_t>(accepted)};
  posted_.store(posted + static_cast<uint32_t>(accepted), std::memory_order_relaxed);
  chains_in_flight_.store(chain_tail_ - chain_head_, std::memory_order_relaxed);
  counters_->doorbells.Add(1);
  counters_->work_requests.Add(used);
  return accepted;
}

size_t SendQueue::Poll(Span<Completion> completions, const char** error) {
  if (chain_head_ == chain_tail_) return 0;
  ibv_wc wc[kPollBatch];
  const int room = static_cast<int>(std::min<size_t>(completions.size(), kPollBatch));
  const int got = ibv_poll_cq(completions_, room, wc);
  if (got < 0) {
    *error = "polling the send completion queue failed";
    return 0;
  }
  uint32_t done = 0;
  size_t count = 0;
  for (; count < static_cast<size_t>(got); ++count) {
    if (wc[count].status != IBV_WC_SUCCESS) {
      *error = Lib().ibv.wc_status_str(wc[count].status);
      break;
    }
    const Chain& chain = chains_[chain_head_++ & chain_mask_];
    done += chain.length;
    completions[count] = Completion{};
    completions[count].id = chain.id;
  }
  if (count == 0) return 0;
  posted_.store(posted_.load(std::memory_order_relaxed) - done, std::memory_order_relaxed);
  chains_in_flight_.store(chain_tail_ - chain_head_, std::memory_order_relaxed);
  counters_->send_completions.Add(count);
  return count;
}

bool ReceiveQueue::Read(const ibv_wc& completion, Fabric fabric, uint32_t* immediate) const {
  uint32_t word;
  if (fabric == Fabric::kIwarp) {
    if (completion.byte_len != sizeof(word)) return false;
    const size_t index = completion.wr_id >> kMemberBits;
    std::memcpy(&word, words_.data() + index * sizeof(word), sizeof(word));
  } else {
    if (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM) return false;
    word = completion.imm_data;
  }
  *immediate = ntohl(word);
  return true;
}

void ReceiveQueue::Return(const ibv_wc& completion) {
  ibv_recv_wr& request = requests_[completion.wr_id >> kMemberBits];
  request.next = pending_;
  pending_ = &request;
}

bool ReceiveQueue::Repost() {
  if (pending_ == nullptr) return true;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(queue_pair_, std::exchange(pending_, nullptr), &bad) == 0 && bad == nullptr;
}

size_t VerbsEndpoint::Post(Span<const WorkRequest> chain) {
  if (broken_.load(std::memory_order_relaxed) != nullptr ||
      closed_.load(std::memory_order_relaxed)) {
    return 0;
  }
  const char* error = nullptr;
  const size_t accepted = send_.Post(chain, &error);
  if (error != nullptr) Break(error);
  return accepted;
}

size_t VerbsEndpoint::PollSend(Span<Completion> completions) {
  if (send_failure_reported_ || closed_.load(std::memory_order_relaxed)) return 0;
  const char* error = nullptr;
  size_t count = send_.Poll(completions, &error);
  if (error != nullptr) Break(error);
  const char* reason = broken_.load(std::memory_order_acquire);
  if (reason != nullptr && count < completions.size()) {
    send_failure_reported_ = true;
    completions[count] = Completion{};
    completions[count].ok = false;
    completions[count].error = reason;
    ++count;
  }
  return count;
}

void VerbsEndpoint::WantSendEvents(bool want) {
  want_send_events_.store(want, std::memory_order_seq_cst);
  // Either this sees that the progress thread is about to sleep, or PrepareSleep sees the wish.
  if (want && transport_->sleeping()) ArmSend();
}

void VerbsEndpoint::ArmSend() { ibv_req_notify_cq(send_completions_.get(), 0); }

bool VerbsEndpoint::TakeReceiveFailure(Completion* completion) {
  const char* reason = broken_.load(std::memory_order_acquire);
  if (reason == nullptr || receive_failure_reported_ || closed_.load(std::memory_order_relaxed)) {
    return false;
  }
  receive_failure_reported_ = true;
  *completion = Completion{};
  completion->id = options_.context;
  completion->ok = false;
  completion->error = reason;
  return true;
}

template <typename Visit>
inline void VerbsTransport::ForEachEndpoint(Visit&& visit) {
  const uint32_t count = group_count_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    for (ReceiveGroup::Member& member : groups_[i]->members) {
      VerbsEndpoint* endpoint = member.endpoint.load(std::memory_order_seq_cst);
      if (endpoint != nullptr) visit(endpoint);
    }
  }
}

size_t VerbsTransport::PollReceive(Span<Completion> completions) {
  const PollGate::Inside inside(&gate_);
  const uint32_t groups = group_count_.load(std::memory_order_acquire);
  size_t count = 0;
  bool drained = true;
  for (uint32_t i = 0; i < groups; ++i) {
    if (count == completions.size()) {
      drained = false;
      break;
    }
    ReceiveGroup* group = groups_[(first_group_ + i) % groups].get();
    count += PollGroup(group, completions.subspan(count), &drained);
  }
  if (groups != 0) first_group_ = (first_group_ + 1) % groups;
  // What arrived before an endpoint broke is delivered before the news that it did.
  if (drained && broken_news_.load(std::memory_order_relaxed)) {
    count += ReportBroken(completions.subspan(count));
  }
  return count;
}

size_t VerbsTransport::PollGroup(ReceiveGroup* group, Span<Completion> completions, bool* drained) {
  ibv_wc wc[kReceiveBatch];
  const int room = static_cast<int>(std::min<size_t>(completions.size(), kReceiveBatch));
  const int got = ibv_poll_cq(group->completions.get(), room, wc);
  if (got < room) {
    group->drained.store(group->drained.load(std::memory_order_relaxed) + 1,
                         std::memory_order_release);
  } else {
    *drained = false;
  }
  size_t count = 0;
  uint32_t touched = 0;  // a bit a member
  VerbsEndpoint* endpoints[ReceiveGroup::kMembers];
  for (int i = 0; i < got; ++i) {
    const uint32_t member = wc[i].wr_id & (ReceiveGroup::kMembers - 1);
    if ((touched & (1u << member)) == 0) {
      endpoints[member] = group->members[member].endpoint.load(std::memory_order_seq_cst);
      if (endpoints[member] == nullptr) continue;  // left, and its completions are still here
      touched |= 1u << member;
    }
    if (TakeArrival(endpoints[member], wc[i], &completions[count])) ++count;
  }
  ForEachBit(touched, [&](int member) {
    if (!endpoints[member]->receives()->Repost()) {
      endpoints[member]->Break("the device takes no more receives; the connection was lost");
    }
  });
  return count;
}

bool VerbsTransport::TakeArrival(VerbsEndpoint* endpoint, const ibv_wc& completion,
                                 Completion* out) {
  if (completion.status != IBV_WC_SUCCESS) {
    endpoint->Break(completion.status == IBV_WC_WR_FLUSH_ERR
                        ? "the connection was lost"
                        : Lib().ibv.wc_status_str(completion.status));
    return false;
  }
  *out = Completion{};
  if (!endpoint->receives()->Read(completion, device_->fabric(), &out->immediate)) {
    endpoint->Break("the peer sent something other than an immediate");
    return false;
  }
  endpoint->receives()->Return(completion);
  if (endpoint->is_silent()) return false;
  out->id = endpoint->options().context;
  endpoint->options().counters->receive_completions.Add(1);
  return true;
}

size_t VerbsTransport::ReportBroken(Span<Completion> completions) {
  broken_news_.exchange(false, std::memory_order_acq_rel);
  size_t count = 0;
  ForEachEndpoint([&](VerbsEndpoint* endpoint) {
    if (count == completions.size()) {
      NoteBroken();
    } else if (endpoint->TakeReceiveFailure(&completions[count])) {
      ++count;
    }
  });
  return count;
}

void VerbsTransport::PrepareSleep() {
  const PollGate::Inside inside(&gate_);
  sleeping_.store(true, std::memory_order_seq_cst);
  const uint32_t count = group_count_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    // A request for an event stays until the event comes.
    if (groups_[i]->armed) continue;
    groups_[i]->armed = ibv_req_notify_cq(groups_[i]->completions.get(), 0) == 0;
  }
  ForEachEndpoint([](VerbsEndpoint* endpoint) {
    if (endpoint->wants_send_events()) endpoint->ArmSend();
  });
}

void VerbsTransport::FinishSleep() {
  sleeping_.store(false, std::memory_order_relaxed);
  ibv_cq* last = nullptr;
  unsigned events = 0;
  for (;;) {
    ibv_cq* completions = nullptr;
    void* group = nullptr;  // null for a send completion queue
    const bool got = Lib().ibv.get_cq_event(channel_.get(), &completions, &group) == 0;
    if (events != 0 && (!got || completions != last)) {
      Lib().ibv.ack_cq_events(last, events);
      events = 0;
    }
    if (!got) break;
    if (group != nullptr) static_cast<ReceiveGroup*>(group)->armed = false;
    last = completions;
    ++events;
  }
}

}  // namespace verbs
}  // namespace rdmabatch
