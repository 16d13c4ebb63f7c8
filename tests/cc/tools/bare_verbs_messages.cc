// bare_verbs_messages IP [SECONDS [BYTES]]: one-by-one confirmation by the plainest program, what
// the engine's confirm="each" is to be compared with. Each message is copied into one of 64 slots
// and posted as a WRITE with immediate; the receiver reads it and posts a WRITE with immediate
// without a payload, which frees the slot. Prints `BYTES bytes: X messages/s`. RoCE and InfiniBand
// only.
#include <cstring>

#include "tests/cc/tools/bare_verbs.h"

namespace {

using namespace bare;  // NOLINT(google-build-using-namespace): one small program

constexpr uint32_t kSlots = 64;
constexpr uint32_t kReceives = 3 * kSlots;
constexpr uint32_t kSends = 4 * kSlots;

// Both directions of one side: 64 slots of local memory, and those of the peer.
class Side {
 public:
  Side(rdma_cm_id* id, uint32_t bytes) : id_(id), bytes_(bytes), memory_(NewMemory(size())) {
    region_ = rdma_reg_write(id, memory_, size());
    Check(region_ != nullptr, "rdma_reg_write");
    for (uint32_t i = 0; i < kReceives; ++i) Receive();
  }
  Target own() const { return {reinterpret_cast<uint64_t>(memory_), region_->rkey}; }
  void set_peer(const void* private_data) { peer_ = *static_cast<const Target*>(private_data); }
  char* slot(uint32_t i) { return static_cast<char*>(memory_) + size_t{i} * bytes_; }

  void Send(uint32_t slot_number, uint32_t length) {
    while (outstanding_ == kSends) {
      ibv_wc completions[32];
      const int count = Poll(id_->send_cq, completions);
      outstanding_ -= static_cast<uint32_t>(count);
    }
    ibv_sge entry{reinterpret_cast<uint64_t>(slot(slot_number)), length, region_->lkey};
    ibv_send_wr request{};
    request.sg_list = &entry;
    request.num_sge = length != 0 ? 1 : 0;
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.imm_data = slot_number;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma = {peer_.address + uint64_t{slot_number} * bytes_, peer_.key};
    ibv_send_wr* bad = nullptr;
    Check(ibv_post_send(id_->qp, &request, &bad) == 0, "ibv_post_send");
    ++outstanding_;
  }

  // Calls `handle` with the immediate of each arrival that waits.
  template <typename Handle>
  void TakeArrivals(Handle handle) {
    ibv_wc completions[32];
    const int count = Poll(id_->recv_cq, completions);
    for (int i = 0; i < count; ++i) {
      Receive();
      handle(completions[i].imm_data);
    }
  }

 private:
  size_t size() const { return size_t{kSlots} * bytes_; }
  void Receive() {
    ibv_recv_wr request{};
    ibv_recv_wr* bad = nullptr;
    Check(ibv_post_recv(id_->qp, &request, &bad) == 0, "ibv_post_recv");
  }
  static int Poll(ibv_cq* queue, ibv_wc (&completions)[32]) {
    const int count = ibv_poll_cq(queue, 32, completions);
    for (int i = 0; i < count; ++i) {
      Check(completions[i].status == IBV_WC_SUCCESS, "completion");
    }
    Check(count >= 0, "ibv_poll_cq");
    if (count == 0) sched_yield();  // a software device may need this very processor
    return count;
  }

  rdma_cm_id* const id_;
  const uint32_t bytes_;
  void* const memory_;
  ibv_mr* region_ = nullptr;
  Target peer_{};
  uint32_t outstanding_ = 0;
};

[[noreturn]] void Serve(rdma_cm_id* listener, uint32_t bytes) {
  rdma_cm_id* id = nullptr;
  Check(rdma_get_request(listener, &id) == 0, "rdma_get_request");
  Side side(id, bytes);
  side.set_peer(id->event->param.conn.private_data);
  const Target own = side.own();
  rdma_conn_param parameters{};
  parameters.private_data = &own;
  parameters.private_data_len = sizeof(own);
  Check(rdma_accept(id, &parameters) == 0, "rdma_accept");
  volatile char seen = 0;
  for (;;) {
    side.TakeArrivals([&](uint32_t slot) {
      seen = *side.slot(slot);
      side.Send(slot, 0);
    });
  }
}

void Work(rdma_cm_id* id, double seconds, uint32_t bytes) {
  Side side(id, bytes);
  const Target own = side.own();
  rdma_conn_param parameters{};
  parameters.private_data = &own;
  parameters.private_data_len = sizeof(own);
  parameters.retry_count = 6;
  parameters.rnr_retry_count = 7;
  Check(rdma_connect(id, &parameters) == 0, "rdma_connect");
  side.set_peer(id->event->param.conn.private_data);

  const std::vector<char> message(bytes, 1);
  const auto send = [&](uint32_t slot) {
    std::memcpy(side.slot(slot), message.data(), bytes);
    side.Send(slot, bytes);
  };
  const Clock clock;
  for (uint32_t slot = 0; slot < kSlots; ++slot) send(slot);
  uint64_t confirmed = 0;
  while (clock.seconds() < seconds) {
    side.TakeArrivals([&](uint32_t slot) {
      ++confirmed;
      send(slot);
    });
  }
  std::printf("%u bytes: %.0f messages/s\n", bytes,
              static_cast<double>(confirmed) / clock.seconds());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bare_verbs_messages IP [SECONDS [BYTES]]\n");
    return 2;
  }
  const double seconds = argc > 2 ? std::atof(argv[2]) : 2;
  const auto bytes = static_cast<uint32_t>(argc > 3 ? std::atoi(argv[3]) : 64);
  return RunBoth(
      argv[1], {kSends, kReceives, 1, 1, 0}, [&](rdma_cm_id* listener) { Serve(listener, bytes); },
      [&](rdma_cm_id* id) { Work(id, seconds, bytes); });
}
