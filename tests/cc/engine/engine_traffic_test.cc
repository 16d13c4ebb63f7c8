// A million messages of random size and timing between two engines, on every transport, in both
// modes, over one and two queue pairs.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <tuple>

#include "tests/cc/engine/engine_harness.h"

namespace rdmabatch::testing {
namespace {

constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15u;

// How many: RDMABATCH_TEST_MESSAGES, else what fits the transport and the build.
uint64_t Messages(const Subject& subject) {
  if (const char* count = std::getenv("RDMABATCH_TEST_MESSAGES"))
    return std::strtoull(count, nullptr, 10);
  if (kSanitized) return 20000;
  return subject.transport == "shm" ? 1000000 : 100000;
}

// The content of message `tag` follows from its number.
void Write(uint64_t tag, uint8_t* data, size_t bytes) {
  uint64_t word = (tag + 1) * kMultiplier;
  for (size_t i = 0; i < bytes; i += 8, word += kMultiplier) {
    std::memcpy(data + i, &word, std::min<size_t>(8, bytes - i));
  }
}

bool Check(uint64_t tag, Span<const uint8_t> data) {
  uint64_t word = (tag + 1) * kMultiplier;
  for (size_t i = 0; i < data.size(); i += 8, word += kMultiplier) {
    if (std::memcmp(data.data() + i, &word, std::min<size_t>(8, data.size() - i)) != 0)
      return false;
  }
  return true;
}

size_t SizeOf(uint64_t tag) {
  std::minstd_rand random(static_cast<uint32_t>(tag * 2654435761u + 1));
  random();
  const uint32_t kind = random() % 1000;
  if (kind < 5) return 1 + random() % 20000;  // some slots
  if (kind < 50) return 1 + random() % 4096;
  return 1 + random() % 128;
}

struct Receiver {
  explicit Receiver(uint64_t count) : seen(count) {}
  Disposition Take(const IncomingMessage& message) {
    if (message.tag >= seen.size() || seen[message.tag]) {
      ++wrong;
    } else {
      seen[message.tag] = true;
      if (message.payload.size() != SizeOf(message.tag) || !Check(message.tag, message.payload))
        ++wrong;
    }
    taken.fetch_add(1);
    return Disposition::kDone;
  }
  std::vector<bool> seen;
  std::atomic<uint64_t> wrong{0};
  std::atomic<uint64_t> taken{0};
};

// Sends the messages first, first + step, ...
void SendAll(Connection* connection, uint64_t first, uint64_t step, uint64_t count) {
  std::minstd_rand random(static_cast<uint32_t>(first + 7));
  std::vector<uint8_t> bytes(20000);
  for (uint64_t tag = first; tag < count; tag += step) {
    const size_t size = SizeOf(tag);
    Write(tag, bytes.data(), size);
    const bool more = random() % 8 != 0 && tag + step < count;
    const Status sent =
        connection->Send({MessageKind::kUser, tag, {}, {bytes.data(), size}}, Patience(), more);
    ASSERT_TRUE(sent.ok()) << tag << ": " << sent.message();
    const uint32_t pause = random() % 20000;
    if (pause == 0) {
      connection->Flush();
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    } else if (pause < 100) {
      std::this_thread::yield();
    }
  }
  connection->Flush();
}

using Parameters = std::tuple<Subject, Confirm, uint32_t>;
class EngineTraffic : public ::testing::TestWithParam<Parameters> {};

TEST_P(EngineTraffic, EveryMessageArrivesOnceAndWhole) {
  const auto& [subject, confirm, queue_pairs] = GetParam();
  EngineOptions options = OptionsFor(subject, "client");
  if (Status probed = FindTransport(subject.transport)->probe(); !probed.ok()) {
    GTEST_SKIP() << probed.message();
  }
  options.confirm = confirm;
  options.queue_pairs = queue_pairs;
  options.first_index = 0xffffff00u;
  const uint64_t count = Messages(subject);
  const uint64_t back = count / 4;
  Receiver at_server(count);
  Receiver at_client(back);
  EnginePair pair;
  pair.server_sink.on_message = [&](Connection&, const IncomingMessage& m) {
    return at_server.Take(m);
  };
  pair.client_sink.on_message = [&](Connection&, const IncomingMessage& m) {
    return at_client.Take(m);
  };
  ASSERT_NO_FATAL_FAILURE(pair.Start(subject, options));
  EXPECT_EQ(pair.connection->transport(), subject.transport);
  EXPECT_EQ(pair.connection->confirm(), confirm);
  const auto servers = pair.servers();
  std::thread first([&] { SendAll(pair.connection.get(), 0, 2, count); });
  std::thread second([&] { SendAll(pair.connection.get(), 1, 2, count); });
  std::thread third([&] { SendAll(servers.get(), 0, 1, back); });
  first.join();
  second.join();
  third.join();
  EXPECT_TRUE(Eventually([&] { return at_server.taken == count && at_client.taken == back; }))
      << at_server.taken << " of " << count << ", " << at_client.taken << " of " << back;
  EXPECT_EQ(at_server.wrong, 0u);
  EXPECT_EQ(at_client.wrong, 0u);
  EXPECT_EQ(pair.client_sink.closed_count() + pair.server_sink.closed_count(), 0u);
}

std::string Name(const ::testing::TestParamInfo<Parameters>& info) {
  const auto& [subject, confirm, queue_pairs] = info.param;
  return ::testing::PrintToString(subject) + (confirm == Confirm::kBatch ? "_batch_" : "_each_") +
         std::to_string(queue_pairs);
}

INSTANTIATE_TEST_SUITE_P(On, EngineTraffic,
                         ::testing::Combine(::testing::ValuesIn(Subjects()),
                                            ::testing::Values(Confirm::kBatch, Confirm::kEach),
                                            ::testing::Values(1u, 2u)),
                         Name);

}  // namespace
}  // namespace rdmabatch::testing
