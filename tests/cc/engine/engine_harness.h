// Two engines in one process, and what arrives at them.
#ifndef TF_RDMABATCH_TESTS_CC_ENGINE_ENGINE_HARNESS_H_
#define TF_RDMABATCH_TESTS_CC_ENGINE_ENGINE_HARNESS_H_

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cc/transport/harness.h"
#include "tf_rdmabatch/cc/engine/engine.h"

namespace rdmabatch::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// Waits for a condition that another thread makes true.
inline bool Eventually(const std::function<bool()>& condition, double seconds = kPatience) {
  for (const Deadline deadline = Deadline::After(seconds); !condition();) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

struct EngineSink : MessageSink {
  Disposition OnMessage(Connection& connection, const IncomingMessage& message) override {
    if (on_message) return on_message(connection, message);
    ++messages;
    return Disposition::kDone;
  }
  void OnConnected(Connection& connection) override {
    ++connected;
    if (on_connected) on_connected(connection);
  }
  void OnClosed(Connection&, const Status& status) override {
    std::lock_guard<std::mutex> lock(mutex);
    closed.push_back(status);
  }
  size_t closed_count() {
    std::lock_guard<std::mutex> lock(mutex);
    return closed.size();
  }
  Status last_closed() {
    std::lock_guard<std::mutex> lock(mutex);
    return closed.empty() ? Status() : closed.back();
  }

  // Set before the engine is created.
  std::function<Disposition(Connection&, const IncomingMessage&)> on_message;
  std::function<void(Connection&)> on_connected;
  std::atomic<uint64_t> messages{0};
  std::atomic<int> connected{0};
  std::mutex mutex;
  std::vector<Status> closed;
};

inline EngineOptions OptionsFor(const Subject& subject, const std::string& name) {
  if (!subject.device.empty()) setenv("TF_RDMABATCH_DEVICE", subject.device.c_str(), 1);
  EngineOptions options;
  options.token = "the job's token";
  options.name = name;
  options.transport = subject.transport;
  options.tls = subject.tls;
  options.slot_bytes = 4096;
  return options;
}

inline std::string ListenAddress(const Subject& subject) {
  return LocalIp(subject.transport) + ":0";
}

inline std::unique_ptr<Engine> MakeEngine(const EngineOptions& options, MessageSink* sink) {
  auto engine = Engine::Create(options, sink);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? std::move(*engine) : nullptr;
}

inline OutgoingMessage User(const std::string& bytes, uint64_t tag = 0) {
  return {
      MessageKind::kUser, tag, {}, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}};
}

// A client connected to a server. Engines go before their sinks.
struct EnginePair {
  EngineSink server_sink;
  EngineSink client_sink;
  std::unique_ptr<Engine> server;
  std::unique_ptr<Engine> client;
  std::string address;
  std::shared_ptr<Connection> connection;  // the client's

  void Start(const Subject& subject, const EngineOptions& client_options) {
    EngineOptions server_options = client_options;
    server_options.name = "server";
    server = MakeEngine(server_options, &server_sink);
    client = MakeEngine(client_options, &client_sink);
    ASSERT_TRUE(server != nullptr && client != nullptr);
    auto bound = server->Listen(ListenAddress(subject));
    ASSERT_TRUE(bound.ok()) << bound.status().message();
    address = *bound;
    auto connected = client->Connect(address, Patience());
    ASSERT_TRUE(connected.ok()) << connected.status().message();
    connection = *connected;
    ASSERT_TRUE(Eventually([&] { return server->connections().size() == 1; }));
  }
  std::shared_ptr<Connection> servers() const { return server->connections().at(0); }
};

class EngineTest : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    if (!GetParam().device.empty()) {
      setenv("TF_RDMABATCH_DEVICE", GetParam().device.c_str(), 1);
    }
    Status probed = FindTransport(GetParam().transport)->probe();
    if (!probed.ok()) GTEST_SKIP() << probed.message();
  }
  EngineOptions Options(const std::string& name = "client") { return OptionsFor(GetParam(), name); }
};

}  // namespace rdmabatch::testing

#endif  // TF_RDMABATCH_TESTS_CC_ENGINE_ENGINE_HARNESS_H_
