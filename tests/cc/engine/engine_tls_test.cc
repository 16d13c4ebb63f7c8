// Engines with TLS: who may connect, and what carries their connections.
#include <gtest/gtest.h>

#include "tests/cc/engine/engine_harness.h"
#include "tf_rdmabatch/cc/transport/tcp/tcp.h"

namespace rdmabatch::testing {
namespace {

EngineOptions Options(bool tls, const std::string& transport = "tcp") {
  EngineOptions options = OptionsFor({"tcp", ""}, "worker:0");
  options.transport = transport;
  options.tls = tls;
  return options;
}

class EngineTls : public ::testing::TestWithParam<bool> {};  // whether the connecting side does

TEST_P(EngineTls, OneSideAloneIsAnErrorOfBothThatNamesBothHosts) {
  EngineSink sinks[2];
  auto server = MakeEngine(Options(!GetParam()), &sinks[0]);
  auto client = MakeEngine(Options(GetParam()), &sinks[1]);
  const Status refused =
      client->Connect(server->Listen("127.0.0.1:0").value(), Patience()).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition) << refused.message();
  for (const std::string part : {"this side, 127.0.0.1,", "peer 127.0.0.1:", "uses TLS and",
                                 "does not: set TF_RDMABATCH_TLS=1"}) {
    EXPECT_NE(refused.message().find(part), std::string::npos) << refused.message();
  }
  EXPECT_TRUE(Eventually([&] { return server->counters().refused == 1; }));
  EXPECT_TRUE(client->connections().empty() && server->connections().empty());
}

INSTANTIATE_TEST_SUITE_P(Connecting, EngineTls, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "WithTls" : "Plain"; });

TEST(EngineTlsOption, WhatDoesNotEncryptIsLeftOutOrRefused) {
  const TransportFactory open{"open", kTcpTransport.probe, kTcpTransport.create};
  const TransportFactory known[] = {open, kTcpTransport};
  EngineSink sinks[2];
  auto server = Engine::Create(Options(true, "auto"), &sinks[0], known);
  auto client = Engine::Create(Options(true, "auto"), &sinks[1], known);
  ASSERT_TRUE(server.ok() && client.ok());
  auto connected = (*client)->Connect((*server)->Listen("127.0.0.1:0").value(), Patience());
  ASSERT_TRUE(connected.ok()) << connected.status().message();
  EXPECT_EQ((*connected)->transport(), "tcp");
  EXPECT_NE((*connected)->choice().find("open: it does not encrypt"), std::string::npos)
      << (*connected)->choice();

  const Status refused = Engine::Create(Options(true, "open"), &sinks[0], known).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_NE(refused.message().find("open: it does not encrypt, as tls=True"), std::string::npos)
      << refused.message();
}

TEST(EngineTlsOption, TheEnvironmentSaysWhatTheProgramDoesNot) {
  EngineOptions unsaid = Options(false);
  unsaid.tls.reset();
  EXPECT_FALSE(unsaid.Tls().value());
  setenv("TF_RDMABATCH_TLS", "1", 1);
  EXPECT_TRUE(unsaid.Tls().value());
  EXPECT_FALSE(Options(false).Tls().value());
  setenv("TF_RDMABATCH_TLS", "yes", 1);
  const Status wrong = unsaid.Tls().status();
  unsetenv("TF_RDMABATCH_TLS");
  EXPECT_EQ(wrong.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(wrong.message().find("TF_RDMABATCH_TLS: \"yes\""), std::string::npos);
}

}  // namespace
}  // namespace rdmabatch::testing
