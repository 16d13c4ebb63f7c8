// What the shared-memory transport does beyond the conformance suite: exact limits, resources, and
// hostile peers.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cc/transport/harness.h"
#include "tf_rdmabatch/cc/transport/shm/layout.h"
#include "tf_rdmabatch/cc/transport/shm/unix_socket.h"

namespace rdmabatch::shm {
namespace {

using testing::Chain;
using testing::Pair;
using testing::Patience;

class ShmTest : public testing::TransportTest {};
INSTANTIATE_TEST_SUITE_P(Shm, ShmTest, ::testing::Values(testing::Subject{"shm", ""}),
                         testing::SubjectName);

size_t OpenDescriptors() {
  size_t count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

size_t MappedSegments() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("memfd:rdmabatch") != std::string::npos;
  return count;
}

TEST_P(ShmTest, AFullRingCutsTheChainExactly) {
  Pair pair;
  EndpointOptions b = Options(2);
  b.max_receives = 5;  // not the ring's size
  ASSERT_NO_FATAL_FAILURE(Connect(&pair, Options(1), b));
  std::vector<WorkRequest> chain;
  for (uint32_t i = 0; i < 12; ++i) chain.push_back(pair.a.WriteImm(0, i * 8, 8, i, i));
  Endpoint* endpoint = pair.a.endpoint.get();
  EXPECT_EQ(endpoint->Post(Chain(chain)), 5u);
  EXPECT_EQ(endpoint->Post(Chain(chain).subspan(5)), 0u);
  EXPECT_EQ(endpoint->Post(Chain({pair.a.Write(0, 0, 8), pair.a.WriteImm(0, 0, 8, 1)})), 1u)
      << "writes have room";
  EXPECT_EQ(pair.a.counters->values().queue_stalls, 3u);
  Completion arrivals[2];
  ASSERT_EQ(pair.b.transport->PollReceive(arrivals), 2u);
  EXPECT_EQ(endpoint->Post(Chain(chain).subspan(5)), 2u);
  const auto rest = pair.b.TakeArrivals(5, Patience());
  ASSERT_EQ(rest.size(), 5u);
  for (uint32_t i = 0; i < 5; ++i) EXPECT_EQ(rest[i].immediate, i + 2);
  const auto sends = pair.a.TakeSends(3, Patience());
  ASSERT_EQ(sends.size(), 3u);
  EXPECT_EQ(endpoint->send_queue_free(), 256u);
}

TEST_P(ShmTest, OtherChainsCompleteAtOnceAndInOrder) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  ASSERT_TRUE(pair.a.PostAll(Chain({pair.a.Write(0, 0, 64, 1)}), Patience()));
  ASSERT_TRUE(pair.a.PostAll(Chain({pair.a.Read(0, 0, 64, 2)}), Patience()));
  ASSERT_TRUE(pair.a.PostAll(Chain({pair.a.WriteImm(0, 0, 64, 0, 3)}), Patience()));
  ASSERT_TRUE(pair.a.PostAll(Chain({pair.a.Read(0, 0, 64, 4)}), Patience()));
  Completion sends[8];
  ASSERT_EQ(pair.a.endpoint->PollSend(sends), 2u);
  EXPECT_EQ(sends[0].id, 1u);
  EXPECT_EQ(sends[1].id, 2u);
  EXPECT_EQ(pair.a.endpoint->chains_in_flight(), 2u);
  ASSERT_EQ(pair.b.TakeArrivals(1, Patience()).size(), 1u);
  ASSERT_EQ(pair.a.endpoint->PollSend(sends), 2u);
  EXPECT_EQ(sends[0].id, 3u);
  EXPECT_EQ(sends[1].id, 4u);
}

TEST_P(ShmTest, RefusesWorkRequestsOutsideThePeersMemory) {
  const auto refuse = [this](const std::function<void(const Pair&, WorkRequest*)>& change) {
    Pair pair;
    ASSERT_NO_FATAL_FAILURE(Connect(&pair));
    WorkRequest request = pair.a.Write(0, 0, 64);
    change(pair, &request);
    EXPECT_EQ(pair.a.endpoint->Post(Chain({pair.a.Write(0, 0, 64, 7), request})), 1u);
    const auto sends = pair.a.TakeSends(1, Patience());
    ASSERT_EQ(sends.size(), 1u);
    EXPECT_FALSE(sends[0].ok) << "nothing completes on a broken endpoint";
    EXPECT_EQ(pair.a.endpoint->CheckControl().code(), StatusCode::kOutOfRange);
  };
  refuse([](const Pair&, WorkRequest* request) { request->remote += testing::kArenaBytes - 63; });
  refuse([](const Pair&, WorkRequest* request) { request->remote -= 1; });
  refuse([](const Pair&, WorkRequest* request) { request->length = 0xffffffff; });
  refuse([](const Pair&, WorkRequest* request) { request->remote_key = 5; });
  refuse([](const Pair&, WorkRequest* request) { request->remote_key = kMaxRegions; });
  refuse([](const Pair& pair, WorkRequest* request) {  // only readable
    request->remote = pair.a.published.peers.address;
    request->remote_key = pair.a.published.peers.key;
  });
}

TEST_P(ShmTest, ReadableRegionsCannotBeMappedWritable) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  EXPECT_NE(mprotect(pair.a.published.peers.direct, testing::kArenaBytes, PROT_READ | PROT_WRITE),
            0);
  const int fd = fcntl(pair.b.published.local.fd, F_DUPFD_CLOEXEC, 0);
  EXPECT_EQ(Segment::Map(fd, testing::kArenaBytes, true).status().code(),
            StatusCode::kPermissionDenied);
}

TEST_P(ShmTest, ImportingAgainGivesTheSameMapping) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  auto descriptor = pair.b.endpoint->Export(pair.b.arena.local);
  ASSERT_TRUE(descriptor.ok());
  auto first = pair.a.endpoint->Import(*descriptor);
  auto second = pair.a.endpoint->Import(*descriptor);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->address, second->address);
  EXPECT_EQ(first->key, second->key);
  EXPECT_EQ(first->direct, reinterpret_cast<uint8_t*>(first->address));
  EXPECT_NE(first->key, pair.a.arena.peers.key) << "exported twice: two regions";
}

TEST_P(ShmTest, DescriptorsOfAnotherEndpointAreRefused) {
  Pair first;
  ASSERT_NO_FATAL_FAILURE(Connect(&first));
  Pair second;
  ASSERT_NO_FATAL_FAILURE(Connect(&second));
  auto descriptor = first.b.endpoint->Export(first.b.arena.local);
  ASSERT_TRUE(descriptor.ok());
  EXPECT_EQ(second.a.endpoint->Import(*descriptor).status().code(), StatusCode::kDataLoss);
}

// More than a socket holds, in both directions before either side imports.
TEST_P(ShmTest, ManyRegionsUpToTheLimit) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(Connect(&pair));
  constexpr size_t kMore = kMaxRegions - 2;  // the harness exported two
  std::vector<std::string> descriptors[2];
  const size_t open = OpenDescriptors();
  std::atomic<bool> exported{false};
  std::thread other([&] {
    while (descriptors[1].size() < kMore) {
      auto descriptor = pair.b.endpoint->Export(pair.b.published.local);
      if (!descriptor.ok()) break;
      descriptors[1].push_back(*descriptor);
    }
    exported = true;
  });
  while (descriptors[0].size() < kMore) {
    auto descriptor = pair.a.endpoint->Export(pair.a.published.local);
    if (!descriptor.ok()) break;
    descriptors[0].push_back(*descriptor);
    // As an engine's control thread does when the descriptor is readable.
    EXPECT_TRUE(pair.b.endpoint->CheckControl().ok());
  }
  while (!exported) {
    EXPECT_TRUE(pair.a.endpoint->CheckControl().ok());
    std::this_thread::yield();
  }
  other.join();
  ASSERT_EQ(descriptors[0].size(), kMore);
  ASSERT_EQ(descriptors[1].size(), kMore);
  EXPECT_TRUE(pair.b.endpoint->CheckControl().ok());
  EXPECT_TRUE(pair.a.endpoint->CheckControl().ok());
  EXPECT_EQ(OpenDescriptors(), open) << "regions hold none at the importing side";
  EXPECT_EQ(pair.a.endpoint->Export(pair.a.arena.local).status().code(),
            StatusCode::kResourceExhausted);
  for (size_t i = 0; i < kMore; ++i) {
    ASSERT_TRUE(pair.b.endpoint->Import(descriptors[0][i]).ok());
    ASSERT_TRUE(pair.a.endpoint->Import(descriptors[1][kMore - 1 - i]).ok());
  }
}

TEST_P(ShmTest, ConnectionsLeaveNothingBehind) {
  std::shared_ptr<Transport> from = NewTransport();
  std::shared_ptr<Transport> to = NewTransport();
  const size_t descriptors = OpenDescriptors();
  const size_t segments = MappedSegments();
  for (int i = 0; i < 20; ++i) {
    Pair pair;
    pair.a.transport = from;
    pair.b.transport = to;
    pair.a.Register(4096);
    pair.b.Register(4096);
    ASSERT_NO_FATAL_FAILURE(Connect(&pair));
    EXPECT_LE(OpenDescriptors(), descriptors + 6 + 6) << "three an endpoint, one a segment";
    EXPECT_GT(MappedSegments(), segments);
    if (i % 2 == 0) {  // never imported
      ASSERT_TRUE(pair.a.endpoint->Export(pair.a.arena.local).ok());
    }
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_EQ(MappedSegments(), segments);
}

TEST_P(ShmTest, ChecksItsOptions) {
  auto transport = NewTransport();
  Counters counters;
  const auto connect = [&](const std::function<void(EndpointOptions*)>& change) {
    auto acceptor = transport->Listen("127.0.0.1");
    EndpointOptions options = Options();
    options.counters = &counters;
    change(&options);
    return transport->Connect((*acceptor)->offer(), options, Deadline::After(0.1)).status().code();
  };
  EXPECT_EQ(connect([](EndpointOptions* o) { o->counters = nullptr; }),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(connect([](EndpointOptions* o) { o->send_queue_depth = 0; }),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(connect([](EndpointOptions* o) { o->max_receives = 0; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(connect([](EndpointOptions* o) { o->max_receives = kMaxReceives + 1; }),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(connect([](EndpointOptions*) {}), StatusCode::kDeadlineExceeded);
}

TEST_P(ShmTest, AnotherHostOrNetworkNamespaceIsUnavailable) {
  auto transport = NewTransport();
  Counters counters;
  EndpointOptions options = Options();
  options.counters = &counters;
  auto acceptor = transport->Listen("127.0.0.1");
  ASSERT_TRUE(acceptor.ok());
  Offer offer;
  ASSERT_TRUE(Unpack((*acceptor)->offer(), &offer));
  Offer elsewhere = offer;
  elsewhere.boot_id[3] ^= 1;
  Status status = transport->Connect(Pack(elsewhere), options, Patience()).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("another host"), std::string::npos);
  Offer unheard = offer;
  unheard.name[3] ^= 1;
  status = transport->Connect(Pack(unheard), options, Patience()).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("network namespace"), std::string::npos);
  acceptor->reset();
  status = transport->Connect(Pack(offer), options, Patience()).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.message();
}

}  // namespace
}  // namespace rdmabatch::shm
