// What a SendQueue hands to a device, seen by a device that only takes notes.
#include "tf_rdmabatch/cc/transport/verbs/send_queue.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

namespace rdmabatch::verbs {
namespace {

struct Note {
  ibv_wr_opcode opcode;
  unsigned flags;
  uint32_t length;
  uint64_t remote;
  uint32_t word;  // the immediate, or what an inline SEND carries
};

class FakeDevice {
 public:
  FakeDevice() {
    context_.ops.post_send = [](ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
      return static_cast<FakeDevice*>(qp->qp_context)->Post(wr, bad);
    };
    context_.ops.poll_cq = [](ibv_cq* cq, int room, ibv_wc* wc) {
      return static_cast<FakeDevice*>(cq->cq_context)->Poll(room, wc);
    };
    queue_pair.context = &context_;
    queue_pair.qp_context = this;
    completions.context = &context_;
    completions.cq_context = this;
  }

  ibv_qp queue_pair{};
  ibv_cq completions{};
  std::vector<Note> notes;
  std::deque<ibv_wc_status> finished;
  int posts = 0;
  int result = 0;         // of the next posts
  bool sets_bad = false;  // of the next posts
  bool completes = true;  // signalled requests complete at once

 private:
  int Post(ibv_send_wr* wr, ibv_send_wr** bad) {
    ++posts;
    if (sets_bad) *bad = wr;
    if (result != 0 || sets_bad) return result;
    for (; wr != nullptr; wr = wr->next) {
      Note note{wr->opcode, wr->send_flags, 0, wr->wr.rdma.remote_addr, ntohl(wr->imm_data)};
      if (wr->num_sge == 1) note.length = wr->sg_list->length;
      if (wr->opcode == IBV_WR_SEND) {
        std::memcpy(&note.word, reinterpret_cast<const void*>(wr->sg_list->addr), 4);
        note.word = ntohl(note.word);
      }
      notes.push_back(note);
      if ((wr->send_flags & IBV_SEND_SIGNALED) != 0 && completes) {
        finished.push_back(IBV_WC_SUCCESS);
      }
    }
    return 0;
  }

  int Poll(int room, ibv_wc* wc) {
    int count = 0;
    for (; count < room && !finished.empty(); ++count) {
      wc[count] = ibv_wc{};
      wc[count].status = finished.front();
      finished.pop_front();
    }
    return count;
  }

  ibv_context context_{};
};

class VerbsSendQueue : public ::testing::TestWithParam<Fabric> {
 protected:
  VerbsSendQueue() {
    EndpointOptions options;
    options.send_queue_depth = 8;
    options.first_index = 0xfffffffe;
    options.counters = &counters;
    queue = std::make_unique<SendQueue>(GetParam(), options);
    queue->Attach(&device.queue_pair, &device.completions);
  }

  bool iwarp() const { return GetParam() == Fabric::kIwarp; }
  size_t Post(std::vector<WorkRequest> chain) {
    return queue->Post({chain.data(), chain.size()}, &error);
  }
  std::vector<uint64_t> Poll() {
    Completion done[8];
    const size_t count = queue->Poll(done, &error);
    std::vector<uint64_t> ids;
    for (size_t i = 0; i < count; ++i) ids.push_back(done[i].id);
    return ids;
  }
  static WorkRequest Request(OpCode op, uint32_t length, uint64_t id) {
    WorkRequest request;
    request.op = op;
    request.length = length;
    request.id = id;
    request.immediate = 0x01020304;
    request.remote = 1000 + id;
    return request;
  }

  Counters counters;
  FakeDevice device;
  std::unique_ptr<SendQueue> queue;
  const char* error = nullptr;
};

TEST_P(VerbsSendQueue, SignalsTheLastRequestOfAChainOnly) {
  ASSERT_EQ(Post({Request(OpCode::kWrite, 64, 1), Request(OpCode::kRead, 32, 2),
                  Request(OpCode::kWriteImm, 8, 3)}),
            3u);
  EXPECT_EQ(device.posts, 1);
  ASSERT_EQ(device.notes.size(), iwarp() ? 4u : 3u);
  EXPECT_EQ(device.notes[0].opcode, IBV_WR_RDMA_WRITE);
  EXPECT_EQ(device.notes[1].opcode, IBV_WR_RDMA_READ);
  EXPECT_EQ(device.notes[1].length, 32u);
  EXPECT_EQ(device.notes[2].opcode, iwarp() ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM);
  EXPECT_EQ(device.notes[2].remote, 1003u);
  if (iwarp()) {
    EXPECT_EQ(device.notes[3].opcode, IBV_WR_SEND);
  }
  EXPECT_EQ(device.notes.back().word, 0x01020304u);
  for (const Note& note : device.notes) {
    EXPECT_EQ((note.flags & IBV_SEND_SIGNALED) != 0, &note == &device.notes.back());
  }
  EXPECT_EQ(queue->chains_in_flight(), 1u);
  EXPECT_EQ(Poll(), std::vector<uint64_t>{3});
  EXPECT_EQ(queue->free(), 8u);
  EXPECT_EQ(counters.values().work_requests, device.notes.size());
}

TEST_P(VerbsSendQueue, ALongChainAfterAShortOneIsWhole) {
  for (const size_t length : {1u, 8u, 2u, 8u}) {
    device.notes.clear();
    std::vector<WorkRequest> chain(length, Request(OpCode::kWrite, 64, length));
    ASSERT_EQ(Post(chain), length);
    EXPECT_EQ(device.notes.size(), length);
    EXPECT_EQ(Poll(), std::vector<uint64_t>{length});
  }
}

// Soft-iWARP completes a write that follows a READ before it.
TEST_P(VerbsSendQueue, NoChainCompletesBeforeTheReadsAheadOfIt) {
  const auto fenced = [&] { return (device.notes.back().flags & IBV_SEND_FENCE) != 0; };
  device.completes = false;
  ASSERT_EQ(Post({Request(OpCode::kWriteImm, 8, 1)}), 1u);
  EXPECT_FALSE(fenced());
  ASSERT_EQ(Post({Request(OpCode::kRead, 8, 2)}), 1u);
  EXPECT_FALSE(fenced());
  ASSERT_EQ(Post({Request(OpCode::kWriteImm, 8, 3)}), 1u);
  EXPECT_EQ(fenced(), iwarp());
  device.finished = {IBV_WC_SUCCESS, IBV_WC_SUCCESS};
  EXPECT_EQ(Poll(), (std::vector<uint64_t>{1, 2}));
  ASSERT_EQ(Post({Request(OpCode::kWrite, 8, 4)}), 1u);
  EXPECT_FALSE(fenced());
  ASSERT_EQ(Post({Request(OpCode::kRead, 8, 5), Request(OpCode::kWrite, 8, 6)}), 2u);
  EXPECT_EQ(fenced(), iwarp());
}

TEST_P(VerbsSendQueue, ALoneImmediateIsOneRequest) {
  ASSERT_EQ(Post({Request(OpCode::kWriteImm, 0, 1)}), 1u);
  ASSERT_EQ(device.notes.size(), 1u);
  EXPECT_EQ(device.notes[0].opcode, iwarp() ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM);
  EXPECT_EQ(device.notes[0].length, iwarp() ? 4u : 0u);
}

TEST_P(VerbsSendQueue, InlineIsAskedForWhereWanted) {
  WorkRequest small = Request(OpCode::kWrite, 8, 1);
  small.inline_data = true;
  ASSERT_EQ(Post({small, Request(OpCode::kWrite, 8, 2)}), 2u);
  EXPECT_NE(device.notes[0].flags & IBV_SEND_INLINE, 0u);
  EXPECT_EQ(device.notes[1].flags & IBV_SEND_INLINE, 0u);
}

TEST_P(VerbsSendQueue, CutsWhatDoesNotFitAndCountsTheStall) {
  device.completes = false;
  ASSERT_EQ(Post(std::vector<WorkRequest>(5, Request(OpCode::kWriteImm, 8, 1))), 5u);
  EXPECT_EQ(Post(std::vector<WorkRequest>(5, Request(OpCode::kWriteImm, 8, 2))), 3u);
  EXPECT_EQ(Post({Request(OpCode::kWrite, 8, 3)}), 0u);
  EXPECT_EQ(counters.values().queue_stalls, 2u);
  EXPECT_EQ(device.notes.size(), iwarp() ? 16u : 8u);
  EXPECT_LE(device.notes.size(), queue->entries());
  device.finished = {IBV_WC_SUCCESS};
  EXPECT_EQ(Poll(), std::vector<uint64_t>{1});
  EXPECT_EQ(queue->free(), 5u);
  EXPECT_EQ(queue->chains_in_flight(), 1u);
}

TEST_P(VerbsSendQueue, AnyRefusalIsAnError) {
  struct Case {
    int result;
    bool sets_bad;
  };
  for (const Case& refusal :
       {Case{ENOMEM, true}, Case{-22, true}, Case{-22, false}, Case{0, true}}) {
    device.result = refusal.result;
    device.sets_bad = refusal.sets_bad;
    error = nullptr;
    EXPECT_EQ(Post({Request(OpCode::kWrite, 8, 1)}), 0u);
    EXPECT_NE(error, nullptr) << refusal.result << refusal.sets_bad;
  }
  EXPECT_EQ(counters.values().doorbells, 0u);
}

TEST_P(VerbsSendQueue, SuccessesBeforeAFailureAreReported) {
  if (const Status status = LoadLibrary(); !status.ok()) GTEST_SKIP() << status.message();
  device.completes = false;
  for (uint64_t id : {1, 2, 3}) ASSERT_EQ(Post({Request(OpCode::kWrite, 8, id)}), 1u);
  device.finished = {IBV_WC_SUCCESS, IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR};
  EXPECT_EQ(Poll(), std::vector<uint64_t>{1});
  ASSERT_NE(error, nullptr);
  EXPECT_STREQ(error, "transport retry counter exceeded");
}

INSTANTIATE_TEST_SUITE_P(Fabrics, VerbsSendQueue,
                         ::testing::Values(Fabric::kInfiniBand, Fabric::kIwarp),
                         [](const auto& info) {
                           return info.param == Fabric::kIwarp ? "iwarp" : "infiniband";
                         });

}  // namespace
}  // namespace rdmabatch::verbs
