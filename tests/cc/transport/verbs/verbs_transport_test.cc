// What only the verbs transport has: rdma_cm, shared receive queues, completion channels. The
// conformance suite has the rest. Every test runs once for each device in TF_RDMABATCH_DEVICE.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/cc/transport/harness.h"
#include "tf_rdmabatch/cc/transport/verbs/wire.h"

namespace rdmabatch::testing {
namespace {

Deadline Patience() { return Deadline::After(kPatience); }

std::vector<Subject> VerbsSubjects() {
  std::vector<Subject> subjects;
  for (const Subject& subject : Subjects()) {
    if (subject.transport == "verbs") subjects.push_back(subject);
  }
  return subjects;
}

bool IsReadable(int fd, int timeout_ms) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, timeout_ms) == 1;
}

class VerbsTransportTest : public TransportTest {
 protected:
  std::unique_ptr<Acceptor> Listen(Transport* transport) {
    auto acceptor = transport->Listen(LocalIp("verbs"));
    EXPECT_TRUE(acceptor.ok()) << acceptor.status().message();
    return acceptor.ok() ? std::move(*acceptor) : nullptr;
  }
  EndpointOptions Counted(uint64_t context = 1) {
    EndpointOptions options = Options(context);
    options.counters = &counters_;
    return options;
  }
  static bool IsIwarp(const std::string& offer) {
    return verbs::Offer::Parse(offer)->fabric == verbs::Fabric::kIwarp;
  }

 private:
  Counters counters_;
};

TEST_P(VerbsTransportTest, RejectsAWrongCookieAndThenTakesTheRightOne) {
  auto a = NewTransport();
  auto b = NewTransport();
  auto acceptor = Listen(b.get());
  ASSERT_NE(acceptor, nullptr);
  Result<std::unique_ptr<Endpoint>> accepted = Status(StatusCode::kInternal, "");
  Counters counters;
  EndpointOptions options = Options();
  options.counters = &counters;
  std::thread accepting([&] { accepted = acceptor->Accept(options, Patience()); });
  std::string wrong = acceptor->offer();
  wrong.back() ^= 1;
  auto refused = a->Connect(wrong, Counted(), Patience());
  auto connected = a->Connect(acceptor->offer(), Counted(), Patience());
  accepting.join();
  EXPECT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kPermissionDenied) << refused.status().message();
  EXPECT_TRUE(connected.ok()) << connected.status().message();
  EXPECT_TRUE(accepted.ok()) << accepted.status().message();
  EXPECT_EQ(acceptor->Accept(options, Patience()).status().code(), StatusCode::kFailedPrecondition);
}

TEST_P(VerbsTransportTest, AcceptEndsAtItsDeadline) {
  auto transport = NewTransport();
  auto acceptor = Listen(transport.get());
  ASSERT_NE(acceptor, nullptr);
  auto accepted = acceptor->Accept(Counted(), Deadline::After(0.1));
  EXPECT_EQ(accepted.status().code(), StatusCode::kDeadlineExceeded);
}

TEST_P(VerbsTransportTest, ConnectWithoutAListenerFails) {
  auto transport = NewTransport();
  auto acceptor = Listen(transport.get());
  ASSERT_NE(acceptor, nullptr);
  const std::string offer = acceptor->offer();
  acceptor.reset();
  EXPECT_FALSE(transport->Connect(offer, Counted(), Deadline::After(1)).ok());
}

TEST_P(VerbsTransportTest, ConnectChecksTheOffer) {
  auto transport = NewTransport();
  auto acceptor = Listen(transport.get());
  ASSERT_NE(acceptor, nullptr);
  EXPECT_EQ(transport->Connect("garbage", Counted(), Patience()).status().code(),
            StatusCode::kDataLoss);
  std::string other_fabric = acceptor->offer();
  other_fabric[3] ^= 3;
  const Status status = transport->Connect(other_fabric, Counted(), Patience()).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("iWARP"), std::string::npos) << status.message();
}

TEST_P(VerbsTransportTest, ListenFindsAnAddressOfTheDevice) {
  auto transport = NewTransport();
  for (const char* ip : {"127.0.0.1", "192.0.2.1", "::1"}) {
    auto acceptor = transport->Listen(ip);
    ASSERT_TRUE(acceptor.ok()) << acceptor.status().message();
    const auto offer = verbs::Offer::Parse((*acceptor)->offer());
    ASSERT_TRUE(offer.ok());
    EXPECT_NE(offer.value().address[0], 127) << ip;
  }
  EXPECT_EQ(transport->Listen("nonsense").status().code(), StatusCode::kInvalidArgument);
}

TEST_P(VerbsTransportTest, ListensInARangeOfPorts) {
  auto transport = FindTransport("verbs")->create({{23456, 23457}});
  ASSERT_TRUE(transport.ok()) << transport.status().message();
  auto first = Listen(transport->get());
  auto second = Listen(transport->get());
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_EQ(verbs::Offer::Parse(first->offer())->port, 23456);
  EXPECT_EQ(verbs::Offer::Parse(second->offer())->port, 23457);
  const Status none = (*transport)->Listen(LocalIp("verbs")).status();
  EXPECT_EQ(none.code(), StatusCode::kAlreadyExists);
  EXPECT_NE(none.message().find("23456-23457"), std::string::npos) << none.message();
}

TEST_P(VerbsTransportTest, ProbeNamesTheDevicesWhenTheChosenOneIsMissing) {
  setenv("TF_RDMABATCH_DEVICE", "no_such_device", 1);
  const Status status = FindTransport("verbs")->probe();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("no_such_device"), std::string::npos) << status.message();
  EXPECT_FALSE(FindTransport("verbs")->create({}).ok());
  unsetenv("TF_RDMABATCH_DEVICE");
}

TEST_P(VerbsTransportTest, RefusesQueuesThatTheDeviceCannotHave) {
  auto transport = NewTransport();
  auto acceptor = Listen(transport.get());
  ASSERT_NE(acceptor, nullptr);
  EndpointOptions options = Counted();
  options.send_queue_depth = std::numeric_limits<uint32_t>::max();
  EXPECT_EQ(transport->Connect(acceptor->offer(), options, Patience()).status().code(),
            StatusCode::kInvalidArgument);
  options = Options();
  options.counters = nullptr;
  EXPECT_EQ(transport->Connect(acceptor->offer(), options, Patience()).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_P(VerbsTransportTest, TheAcceptingSideMayAnnounceFirst) {
  for (int round = 0; round < 10; ++round) {
    Pair pair;
    ASSERT_NO_FATAL_FAILURE(Connect(&pair));
    WorkRequest announcement;
    announcement.op = OpCode::kWriteImm;
    announcement.inline_data = true;
    announcement.immediate = 4;
    ASSERT_EQ(pair.b.endpoint->Post({&announcement, 1}), 1u);
    const auto arrivals = pair.a.TakeArrivals(1, Patience());
    ASSERT_EQ(arrivals.size(), 1u);
    EXPECT_TRUE(arrivals[0].ok) << arrivals[0].error;
    EXPECT_EQ(arrivals[0].immediate, 4u);
  }
}

TEST_P(VerbsTransportTest, ShortQueuesNeverOverflow) {
  Pair pair;
  EndpointOptions options = Options(1);
  options.send_queue_depth = 3;
  options.max_receives = 3;
  options.first_index = std::numeric_limits<uint32_t>::max() - 5;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair, options, options));
  Completion done[4];
  uint32_t sent = 0;
  uint32_t received = 0;
  const Deadline deadline = Patience();
  while (received < 5000 && !deadline.expired()) {
    WorkRequest chain[3];
    // Never more announcements than the peer has receives.
    const size_t length = std::min<size_t>({3, 5000 - sent, received + 3 - sent});
    for (size_t i = 0; i < length; ++i) {
      chain[i] = pair.a.WriteImm(0, 0, 8, sent + static_cast<uint32_t>(i));
    }
    sent += static_cast<uint32_t>(pair.a.endpoint->Post({chain, length}));
    const size_t completed = pair.a.endpoint->PollSend(done);
    for (size_t i = 0; i < completed; ++i) ASSERT_TRUE(done[i].ok) << done[i].error;
    const size_t arrived = pair.b.transport->PollReceive(done);
    for (size_t i = 0; i < arrived; ++i) {
      ASSERT_TRUE(done[i].ok) << done[i].error;
      ASSERT_EQ(done[i].immediate, received++);
    }
  }
  EXPECT_EQ(received, 5000u);
}

TEST_P(VerbsTransportTest, CountsDoorbellsAndCompletions) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  std::vector<WorkRequest> chain(15, pair.a.Write(0, 0, 64));
  chain.push_back(pair.a.WriteImm(0, 0, 8, 1));
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(pair.a.endpoint->Post({chain.data(), chain.size()}), 16u);
    ASSERT_EQ(pair.a.TakeSends(1, Patience()).size(), 1u);
    ASSERT_EQ(pair.b.TakeArrivals(1, Patience()).size(), 1u);
  }
  auto acceptor = Listen(pair.a.transport.get());
  ASSERT_NE(acceptor, nullptr);
  const CounterValues sender = pair.a.counters->values();
  EXPECT_EQ(sender.doorbells, 10u);
  EXPECT_EQ(sender.work_requests, IsIwarp(acceptor->offer()) ? 170u : 160u);
  EXPECT_EQ(sender.send_completions, 10u);
  EXPECT_EQ(sender.queue_stalls, 0u);
  EXPECT_EQ(pair.b.counters->values().receive_completions, 10u);
}

TEST_P(VerbsTransportTest, SleepsUntilAnArrival) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  Transport* transport = pair.b.transport.get();
  Completion done[4];
  for (int round = 0; round < 3; ++round) {
    transport->PrepareSleep();
    ASSERT_EQ(transport->PollReceive(done), 0u);
    EXPECT_FALSE(IsReadable(transport->event_fd(), 20));
    const WorkRequest request = pair.a.WriteImm(0, 0, 8, 9);
    ASSERT_EQ(pair.a.endpoint->Post({&request, 1}), 1u);
    EXPECT_TRUE(IsReadable(transport->event_fd(), 5000));
    transport->FinishSleep();
    EXPECT_FALSE(IsReadable(transport->event_fd(), 0));
    EXPECT_EQ(pair.b.TakeArrivals(1, Patience()).size(), 1u);
    EXPECT_EQ(pair.a.TakeSends(1, Patience()).size(), 1u);
  }
}

TEST_P(VerbsTransportTest, SendCompletionsWakeOnlyWhenWanted) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  Transport* transport = pair.a.transport.get();
  const WorkRequest request = pair.a.Write(0, 0, 4096);
  const auto post = [&] { ASSERT_EQ(pair.a.endpoint->Post({&request, 1}), 1u); };
  const auto finish = [&] {
    transport->FinishSleep();
    ASSERT_EQ(pair.a.TakeSends(1, Patience()).size(), 1u);
  };
  transport->PrepareSleep();
  post();
  EXPECT_FALSE(IsReadable(transport->event_fd(), 50));
  finish();

  pair.a.endpoint->WantSendEvents(true);
  transport->PrepareSleep();
  post();
  EXPECT_TRUE(IsReadable(transport->event_fd(), 5000));
  finish();
  pair.a.endpoint->WantSendEvents(false);

  transport->PrepareSleep();
  pair.a.endpoint->WantSendEvents(true);  // while the progress thread sleeps
  post();
  EXPECT_TRUE(IsReadable(transport->event_fd(), 5000));
  finish();
}

TEST_P(VerbsTransportTest, ABadKeyBreaksTheEndpointOnce) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  WorkRequest request = pair.a.Write(0, 0, 4096);
  request.remote_key ^= 0x5a5a00;
  ASSERT_EQ(pair.a.endpoint->Post({&request, 1}), 1u);
  // Soft-iWARP completes the write and then loses the connection.
  Completion done;
  const Deadline deadline = Patience();
  do {
    ASSERT_FALSE(deadline.expired());
    (void)pair.a.endpoint->CheckControl();
    done = Completion{};
    pair.a.endpoint->PollSend({&done, 1});
  } while (done.ok);
  EXPECT_NE(done.error, nullptr);
  const auto news = pair.a.TakeArrivals(1, Patience());
  ASSERT_EQ(news.size(), 1u);
  EXPECT_FALSE(news[0].ok);
  EXPECT_EQ(news[0].id, 1u);
  EXPECT_EQ(pair.a.endpoint->PollSend({&done, 1}), 0u);
  EXPECT_EQ(pair.a.transport->PollReceive({&done, 1}), 0u);
  EXPECT_EQ(pair.a.endpoint->Post({&request, 1}), 0u);
  EXPECT_EQ(pair.a.endpoint->CheckControl().code(), StatusCode::kUnavailable);
}

TEST_P(VerbsTransportTest, ManyEndpointsShareReceiveQueues) {
  auto a = NewTransport();
  auto b = NewTransport();
  constexpr int kPairs = 20;
  std::vector<Pair> pairs(kPairs);
  for (int i = 0; i < kPairs; ++i) {
    pairs[i].a.transport = a;
    pairs[i].b.transport = b;
    pairs[i].a.Register(4096);
    pairs[i].b.Register(4096);
    ASSERT_NO_FATAL_FAILURE(Connect(&pairs[i], Options(100), Options(static_cast<uint64_t>(i))));
  }
  for (Pair& pair : pairs) {
    const WorkRequest request = pair.a.WriteImm(0, 0, 8, 7);
    ASSERT_EQ(pair.a.endpoint->Post({&request, 1}), 1u);
  }
  std::vector<int> seen(kPairs, 0);
  for (const Completion& arrival : pairs[0].b.TakeArrivals(kPairs, Patience())) {
    ASSERT_TRUE(arrival.ok) << arrival.error;
    ++seen[arrival.id];
  }
  EXPECT_EQ(seen, std::vector<int>(kPairs, 1));
}

// The thread sanitizer's case: endpoints come and go while a progress thread polls and sleeps.
TEST_P(VerbsTransportTest, EndpointsLeaveWhileTheProgressThreadPolls) {
  auto a = NewTransport();
  auto b = NewTransport();
  std::atomic<bool> stop{false};
  std::atomic<int> arrived{0};
  std::thread progress([&] {
    Completion done[8];
    while (!stop) {
      b->PrepareSleep();
      const size_t count = b->PollReceive(done);
      for (size_t i = 0; i < count; ++i) {
        if (done[i].ok) ++arrived;
      }
      if (count == 0) IsReadable(b->event_fd(), 1);
      b->FinishSleep();
    }
  });
  constexpr int kRounds = 40;
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    Pair pair;
    pair.a.transport = a;
    pair.b.transport = b;
    pair.a.Register(4096);
    pair.b.Register(4096);
    Connect(&pair, Options(1), Options(2));
    if (HasFailure()) break;
    const WorkRequest request = pair.a.WriteImm(0, 0, 8, 7);
    EXPECT_EQ(pair.a.endpoint->Post({&request, 1}), 1u);
    if (round % 2 == 0) {
      const Deadline deadline = Patience();
      while (arrived <= round / 2 && !deadline.expired()) std::this_thread::yield();
      EXPECT_GT(arrived, round / 2);
    }
  }
  stop = true;
  progress.join();
}

TEST_P(VerbsTransportTest, EndpointsLeaveWhenNobodyPolls) {
  auto a = NewTransport();
  auto b = NewTransport();
  for (int round = 0; round < 20; ++round) {
    Pair pair;
    pair.a.transport = a;
    pair.b.transport = b;
    pair.a.Register(4096);
    pair.b.Register(4096);
    ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, VerbsTransportTest, ::testing::ValuesIn(VerbsSubjects()),
                         [](const auto& info) { return ::testing::PrintToString(info.param); });

}  // namespace
}  // namespace rdmabatch::testing
