// bare_verbs_writes IP [SECONDS [BYTES [CHAIN]]]: what the device gives to the plainest program.
// Two processes, one RC queue pair, chains of CHAIN (16) WRITEs of BYTES (65536) with the last one
// signalled, two chains outstanding; no memory of the peer's is ever waited for. Prints
// `BYTES bytes: X GB/s, Y messages/s` for the device that has the address IP.
#include "tests/cc/tools/bare_verbs.h"

namespace {

using namespace bare;  // NOLINT(google-build-using-namespace): one small program

constexpr uint32_t kWindow = 2;

// The written side: tells where its memory is, and sleeps until it is killed.
[[noreturn]] void Serve(rdma_cm_id* listener, size_t bytes) {
  rdma_cm_id* id = nullptr;
  Check(rdma_get_request(listener, &id) == 0, "rdma_get_request");
  void* memory = NewMemory(bytes);
  ibv_mr* region = rdma_reg_write(id, memory, bytes);
  Check(region != nullptr, "rdma_reg_write");
  const Target target{reinterpret_cast<uint64_t>(memory), region->rkey};
  rdma_conn_param parameters{};
  parameters.private_data = &target;
  parameters.private_data_len = sizeof(target);
  Check(rdma_accept(id, &parameters) == 0, "rdma_accept");
  for (;;) pause();
}

void Write(rdma_cm_id* id, double seconds, uint32_t bytes, uint32_t chain) {
  const size_t total = size_t{bytes} * chain;
  void* memory = NewMemory(total);
  ibv_mr* region = rdma_reg_msgs(id, memory, total);
  Check(region != nullptr, "rdma_reg_msgs");
  rdma_conn_param parameters{};
  parameters.retry_count = 6;
  parameters.rnr_retry_count = 7;
  Check(rdma_connect(id, &parameters) == 0, "rdma_connect");
  const Target target = *static_cast<const Target*>(id->event->param.conn.private_data);

  std::vector<ibv_sge> entries(chain);
  std::vector<ibv_send_wr> requests(chain);
  for (uint32_t i = 0; i < chain; ++i) {
    const uint64_t offset = uint64_t{i} * bytes;
    entries[i] = {reinterpret_cast<uint64_t>(memory) + offset, bytes, region->lkey};
    requests[i].sg_list = &entries[i];
    requests[i].num_sge = 1;
    requests[i].opcode = IBV_WR_RDMA_WRITE;
    requests[i].wr.rdma = {target.address + offset, target.key};
    requests[i].next = i + 1 < chain ? &requests[i + 1] : nullptr;
  }
  requests.back().send_flags = IBV_SEND_SIGNALED;

  const Clock clock;
  uint64_t chains = 0;
  uint32_t outstanding = 0;
  for (bool more = true; more || outstanding != 0; more = clock.seconds() < seconds) {
    while (more && outstanding < kWindow) {
      ibv_send_wr* bad = nullptr;
      Check(ibv_post_send(id->qp, requests.data(), &bad) == 0 && bad == nullptr, "ibv_post_send");
      ++outstanding;
    }
    ibv_wc completion{};
    const int count = ibv_poll_cq(id->send_cq, 1, &completion);
    Check(count >= 0 && completion.status == IBV_WC_SUCCESS, "completion");
    // A software device may need this very processor.
    if (count == 0) sched_yield();
    outstanding -= static_cast<uint32_t>(count);
    chains += static_cast<uint64_t>(count);
  }
  const double rate = static_cast<double>(chains * chain) / clock.seconds();
  std::printf("%u bytes: %.3f GB/s, %.0f messages/s\n", bytes, rate * bytes / 1e9, rate);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bare_verbs_writes IP [SECONDS [BYTES [CHAIN]]]\n");
    return 2;
  }
  const double seconds = argc > 2 ? std::atof(argv[2]) : 2;
  const auto bytes = static_cast<uint32_t>(argc > 3 ? std::atoi(argv[3]) : 65536);
  const auto chain = static_cast<uint32_t>(argc > 4 ? std::atoi(argv[4]) : 16);
  return RunBoth(
      argv[1], {kWindow * chain + 2, 4, 1, 1, 0},
      [&](rdma_cm_id* listener) { Serve(listener, size_t{bytes} * chain); },
      [&](rdma_cm_id* id) { Write(id, seconds, bytes, chain); });
}
