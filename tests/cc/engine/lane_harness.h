// Two lanes in one process, over shared memory or over the fake transport, moved on by the test
// alone.
#ifndef TF_RDMABATCH_TESTS_CC_ENGINE_LANE_HARNESS_H_
#define TF_RDMABATCH_TESTS_CC_ENGINE_LANE_HARNESS_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cc/engine/fake_endpoint.h"
#include "tf_rdmabatch/cc/engine/lane.h"
#include "tf_rdmabatch/cc/transport/registry.h"

namespace rdmabatch::testing {

// What arrived, in order.
struct LaneSink : LaneHost {
  struct Message {
    uint64_t tag;
    std::string bytes;
  };
  Disposition OnLaneMessage(const MessageHeader& header, Span<const uint8_t> payload,
                            SlotHold hold) override {
    if (on_message) return on_message(header, payload, hold);
    messages.push_back({header.tag, std::string(payload.begin(), payload.end())});
    if (!keep) return Disposition::kDone;
    holds.push_back(hold);
    return Disposition::kHold;
  }
  void OnLaneFailed(const Status& status) override { failures.push_back(status); }

  std::vector<Message> messages;
  // In place of the above, when set.
  std::function<Disposition(const MessageHeader&, Span<const uint8_t>, SlotHold)> on_message;
  bool keep = false;
  std::vector<SlotHold> holds;
  std::vector<Status> failures;
};

struct LaneEnd {
  std::shared_ptr<Transport> transport;
  LaneSink sink;
  std::unique_ptr<Lane> lane;
  FakeEndpoint* fake = nullptr;

  SendOutcome Send(const std::string& bytes, bool more, uint64_t tag = 0) {
    return lane->TrySend({MessageKind::kUser,
                          tag,
                          {},
                          {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}},
                         0, more);
  }
  // One round of the progress thread that takes at most `most` immediates. True when there was
  // anything to do.
  bool Pump(size_t most = 256) {
    Completion completions[256];
    const size_t count = transport->PollReceive(Span<Completion>(completions, most));
    bool handle = false;
    for (size_t i = 0; i < count; ++i) handle |= lane->OnImmediate(completions[i].immediate);
    if (handle) lane->HandleArrivals();
    return (lane->wants_service() && lane->Service()) || count > 0;
  }
  // Once the completions that came are perceived.
  uint32_t ChainsInFlight() {
    lane->WantEvents();
    return lane->endpoint()->chains_in_flight();
  }
  // Where the peer writes: the start of the words and slots.
  uint8_t* memory() const { return fake->exported.at(0).address; }
  CounterValues counters() const { return lane->counters(); }
};

struct LanePair {
  LaneEnd a;
  LaneEnd b;
  void PumpAll() {
    for (int idle = 0; idle < 2;) idle = a.Pump() || b.Pump() ? 0 : idle + 1;
  }
};

inline void MakeLane(LaneEnd* end, const EngineOptions& options, const EngineOptions& peer) {
  auto lane = Lane::Create({0,
                            {options.slots, options.slot_bytes},
                            {peer.slots, peer.slot_bytes},
                            options.confirm,
                            &end->sink,
                            end->transport.get()},
                           options);
  ASSERT_TRUE(lane.ok()) << lane.status().message();
  end->lane = std::move(*lane);
}

inline void LinkFakes(LanePair* pair) {
  for (LaneEnd* end : {&pair->a, &pair->b}) {
    auto endpoint = std::make_unique<FakeEndpoint>(
        static_cast<FakeTransport*>(end->transport.get()), end->lane->MakeEndpointOptions());
    end->fake = endpoint.get();
    end->lane->SetEndpoint(std::move(endpoint));
  }
  FakeEndpoint::Link(pair->a.fake, pair->b.fake);
}

inline void LinkShm(LanePair* pair) {
  auto acceptor = pair->b.transport->Listen("127.0.0.1");
  ASSERT_TRUE(acceptor.ok()) << acceptor.status().message();
  Result<std::unique_ptr<Endpoint>> accepted = Status(StatusCode::kInternal, "not accepted");
  std::thread accepting([&] {
    accepted = (*acceptor)->Accept(pair->b.lane->MakeEndpointOptions(), Deadline::After(10));
  });
  auto connected = pair->a.transport->Connect(
      (*acceptor)->offer(), pair->a.lane->MakeEndpointOptions(), Deadline::After(10));
  accepting.join();
  ASSERT_TRUE(connected.ok()) << connected.status().message();
  ASSERT_TRUE(accepted.ok()) << accepted.status().message();
  pair->a.lane->SetEndpoint(std::move(*connected));
  pair->b.lane->SetEndpoint(std::move(*accepted));
}

// Connected and active lanes over "shm" or "fake".
inline std::unique_ptr<LanePair> MakeLanes(const std::string& transport, const EngineOptions& a,
                                           const EngineOptions& b) {
  auto pair = std::make_unique<LanePair>();
  const bool fake = transport == "fake";
  const auto make = [&](LaneEnd* end) {
    if (fake) {
      end->transport = std::make_shared<FakeTransport>();
    } else {
      auto created = FindTransport(transport)->create({});
      ASSERT_TRUE(created.ok()) << created.status().message();
      end->transport = std::move(*created);
    }
  };
  make(&pair->a);
  make(&pair->b);
  MakeLane(&pair->a, a, b);
  MakeLane(&pair->b, b, a);
  if (::testing::Test::HasFatalFailure()) return nullptr;
  fake ? LinkFakes(pair.get()) : LinkShm(pair.get());
  if (::testing::Test::HasFatalFailure()) return nullptr;
  auto from_a = pair->a.lane->ExportSegment();
  auto from_b = pair->b.lane->ExportSegment();
  EXPECT_TRUE(from_a.ok() && from_b.ok());
  EXPECT_TRUE(pair->a.lane->ImportSegment(*from_b).ok());
  EXPECT_TRUE(pair->b.lane->ImportSegment(*from_a).ok());
  pair->a.lane->Activate();
  pair->b.lane->Activate();
  return pair;
}

inline EngineOptions LaneOptions() {
  EngineOptions options;
  options.token = "t";
  options.slots = 64;
  options.slot_bytes = 4096;
  options.max_batch = 1000;
  options.batch_bytes = 1u << 30;
  return options;
}

}  // namespace rdmabatch::testing

#endif  // TF_RDMABATCH_TESTS_CC_ENGINE_LANE_HARNESS_H_
