// A parameter server and its workers, each with an engine, in this process.
#ifndef TF_RDMABATCH_TESTS_CC_ENGINE_STORE_HARNESS_H_
#define TF_RDMABATCH_TESTS_CC_ENGINE_STORE_HARNESS_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/cc/transport/harness.h"
#include "tf_rdmabatch/cc/engine/engine.h"
#include "tf_rdmabatch/cc/engine/store.h"
#include "tf_rdmabatch/cc/engine/store_wire.h"

namespace rdmabatch::testing {

#define ASSERT_OK(expression)                                         \
  do {                                                                \
    const ::rdmabatch::Status assert_ok_status = (expression);        \
    ASSERT_TRUE(assert_ok_status.ok()) << assert_ok_status.message(); \
  } while (false)

struct Worker {
  ~Worker() {
    if (engine != nullptr) engine->Shutdown();
  }
  std::unique_ptr<ParameterClient> client = std::make_unique<ParameterClient>();
  std::unique_ptr<Engine> engine;
  std::shared_ptr<Connection> server;

  std::shared_ptr<ParameterClient::Parameter> Open(const std::string& name) {
    auto parameter = client->Open(server, name, Patience());
    EXPECT_TRUE(parameter.ok()) << parameter.status().message();
    return parameter.ok() ? *parameter : nullptr;
  }
  // A push that the client would not send.
  Status SendRaw(const PushHeader& header, size_t bytes) {
    const std::vector<uint8_t> body(bytes);
    return server->Send({MessageKind::kPush,
                         0,
                         {reinterpret_cast<const uint8_t*>(&header), sizeof(header)},
                         {body.data(), body.size()}},
                        Patience());
  }
};

class StoreTest : public TransportTest {
 protected:
  void SetUp() override {
    TransportTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    StartServer();
  }
  void TearDown() override {
    workers_.clear();
    if (engine_ != nullptr) engine_->Shutdown();
  }

  EngineOptions OptionsOf(const std::string& name) const {
    EngineOptions options;
    options.token = "a token of the test";
    options.name = name;
    options.transport = GetParam().transport;
    options.slots = slots_;
    options.slot_bytes = slot_bytes_;
    return options;
  }
  void StartServer() {
    auto engine = Engine::Create(OptionsOf("ps:0"), &server_);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engine_ = std::move(*engine);
    server_.Attach(engine_.get());
    auto address = engine_->Listen(LocalIp(GetParam().transport) + ":0");
    ASSERT_TRUE(address.ok()) << address.status().message();
    address_ = *address;
  }
  Worker& AddWorker() {
    auto worker = std::make_unique<Worker>();
    auto engine = Engine::Create(OptionsOf("worker:" + std::to_string(workers_.size())),
                                 worker->client.get());
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    if (engine.ok()) {
      worker->engine = std::move(*engine);
      worker->client->Attach(worker->engine.get());
      auto connection = worker->engine->Connect(address_, Patience());
      EXPECT_TRUE(connection.ok()) << connection.status().message();
      if (connection.ok()) worker->server = *connection;
    }
    workers_.push_back(std::move(worker));
    return *workers_.back();
  }
  // Until the server has counted so many refusals.
  bool Refused(uint64_t count) {
    const Deadline deadline = Patience();
    while (server_.counters().refused < count && !deadline.expired()) sched_yield();
    return server_.counters().refused == count;
  }

  uint32_t slots_ = 64;
  uint32_t slot_bytes_ = 4096;
  ParameterServer server_;
  std::unique_ptr<Engine> engine_;
  std::string address_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

inline ParameterSpec Spec(const std::string& name, std::vector<uint64_t> shape,
                          uint32_t contributors = 1, DType dtype = DType::kFloat32,
                          Consistency consistency = Consistency::kBsp, uint32_t block_bytes = 0) {
  ParameterSpec spec;
  spec.name = name;
  spec.shape = std::move(shape);
  spec.contributors = contributors;
  spec.dtype = dtype;
  spec.consistency = consistency;
  spec.block_bytes = block_bytes;
  return spec;
}

}  // namespace rdmabatch::testing

#endif  // TF_RDMABATCH_TESTS_CC_ENGINE_STORE_HARNESS_H_
