// Which transport carries which connection, and what comes of one that fails: with transports that
// are shared memory, or tcp, under other names.
#include <gtest/gtest.h>

#include <mutex>

#include "tests/cc/engine/engine_harness.h"
#include "tf_rdmabatch/cc/base/log.h"

namespace rdmabatch::testing {
namespace {

// kTcp: none, over tcp; kSecondLane: over tcp, whose endpoints are polled once they exist.
enum class Fault { kNone, kConnect, kListen, kHangs, kAbsent, kOneHost, kTcp, kSecondLane };

constexpr char kNear[] = "near";
constexpr char kBest[] = "best";
constexpr char kLast[] = "last";

std::atomic<Endpoint*> last_connected{nullptr};
std::atomic<int> ends_handled{0};  // of endpoints, by progress threads

class RenamedTransport : public Transport {
 public:
  RenamedTransport(const char* name, Fault fault, std::unique_ptr<Transport> real)
      : name_(name), fault_(fault), real_(std::move(real)) {}

  const char* name() const override { return name_; }
  bool reaches_other_hosts() const override { return fault_ != Fault::kOneHost; }
  Result<LocalMemory> RegisterMemory(const Segment& segment, Access access) override {
    return real_->RegisterMemory(segment, access);
  }
  void Deregister(const LocalMemory& memory) override { real_->Deregister(memory); }
  Result<std::unique_ptr<Acceptor>> Listen(const std::string& local_ip) override {
    if (fault_ == Fault::kListen) return Status(StatusCode::kUnavailable, "the cable is out");
    return real_->Listen(local_ip);
  }
  Result<std::unique_ptr<Endpoint>> Connect(const std::string& offer,
                                            const EndpointOptions& options,
                                            Deadline deadline) override {
    if (fault_ == Fault::kConnect) return Status(StatusCode::kUnavailable, "no route; add one");
    if (fault_ == Fault::kHangs) {
      while (!deadline.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return Status(StatusCode::kDeadlineExceeded, "no answer");
    }
    if (fault_ == Fault::kSecondLane && last_connected != nullptr) {
      last_connected.exchange(nullptr)->Close();
      return Status(StatusCode::kUnavailable, "out of queue pairs");
    }
    auto endpoint = real_->Connect(offer, options, deadline);
    if (endpoint.ok()) last_connected = endpoint->get();
    return endpoint;
  }
  size_t PollReceive(Span<Completion> completions) override {
    ends_handled += std::exchange(ends_, 0);
    const size_t count = real_->PollReceive(completions);
    for (size_t i = 0; i < count; ++i) ends_ += completions[i].ok ? 0 : 1;
    return count;
  }
  int event_fd() const override { return real_->event_fd(); }
  void PrepareSleep() override { real_->PrepareSleep(); }
  void FinishSleep() override { real_->FinishSleep(); }

 private:
  const char* const name_;
  const Fault fault_;
  const std::unique_ptr<Transport> real_;
  int ends_ = 0;  // that the last poll returned
};

template <const char* name, Fault fault>
Result<std::unique_ptr<Transport>> Create(const TransportOptions& options) {
  const bool tcp = fault == Fault::kTcp || fault == Fault::kSecondLane;
  auto real = FindTransport(tcp ? "tcp" : "shm")->create(options);
  if (!real.ok()) return real.status();
  return std::unique_ptr<Transport>(new RenamedTransport(name, fault, std::move(*real)));
}

template <Fault fault>
Status Probe() {
  if (fault != Fault::kAbsent) return Status::Ok();
  return {StatusCode::kUnavailable, "no device; buy one"};
}

template <const char* name, Fault fault = Fault::kNone>
constexpr TransportFactory Factory() {
  return {name, Probe<fault>, Create<name, fault>};
}

const TransportFactory kAllWork[] = {Factory<kNear, Fault::kOneHost>(), Factory<kBest>(),
                                     Factory<kLast>()};
const TransportFactory kBestFails[] = {Factory<kBest, Fault::kConnect>(), Factory<kLast>()};
const TransportFactory kBestHangs[] = {Factory<kBest, Fault::kHangs>(), Factory<kLast>()};
const TransportFactory kSecondLaneFails[] = {Factory<kBest, Fault::kSecondLane>(),
                                             Factory<kLast>()};
const TransportFactory kTcpOnly[] = {Factory<kBest, Fault::kTcp>()};
const TransportFactory kNoneWorks[] = {Factory<kBest, Fault::kConnect>(),
                                       Factory<kLast, Fault::kAbsent>()};
const TransportFactory kBestDoesNotListen[] = {Factory<kBest, Fault::kListen>(), Factory<kLast>()};
const TransportFactory kBestAbsent[] = {Factory<kBest, Fault::kAbsent>(), Factory<kLast>()};

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Warnings that were logged since it was made.
class Warnings {
 public:
  Warnings() {
    SetLogSink([this](LogLevel level, const std::string& message) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (level == LogLevel::kWarning) lines_.push_back(message);
    });
  }
  ~Warnings() { SetLogSink({}); }
  std::vector<std::string> lines() {
    std::lock_guard<std::mutex> lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

class ChoiceTest : public ::testing::Test {
 protected:
  EngineOptions Options(const std::string& name, const std::string& transport = "auto") {
    EngineOptions options = OptionsFor({"shm", ""}, name);
    options.transport = transport;
    return options;
  }
  // An engine that listens; returns its address.
  std::string Serve(const EngineOptions& options, Span<const TransportFactory> known) {
    auto engine = Engine::Create(options, &sink_, known);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    if (!engine.ok()) return "";
    auto address = (*engine)->Listen("127.0.0.1:0");
    EXPECT_TRUE(address.ok()) << address.status().message();
    engines_.push_back(std::move(*engine));
    return *address;
  }
  Engine* Client(const EngineOptions& options, Span<const TransportFactory> known) {
    auto engine = Engine::Create(options, &sink_, known);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    if (!engine.ok()) return nullptr;
    engines_.push_back(std::move(*engine));
    return engines_.back().get();
  }
  Result<std::shared_ptr<Connection>> Connect(const EngineOptions& server,
                                              const EngineOptions& client,
                                              Span<const TransportFactory> servers,
                                              Span<const TransportFactory> clients,
                                              Deadline deadline = Patience()) {
    const std::string address = Serve(server, servers);
    return Client(client, clients)->Connect(address, deadline);
  }
  void ExpectItWorks(const std::shared_ptr<Connection>& connection) {
    const uint64_t before = sink_.messages;
    ASSERT_TRUE(connection->Send(User("it works"), Patience()).ok());
    EXPECT_TRUE(Eventually([&] { return sink_.messages == before + 1; }));
  }

  EngineSink sink_;
  Warnings warnings_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

TEST_F(ChoiceTest, TheBestThatWorksIsUsedAndAWarningSaysWhyNotABetterOne) {
  auto connection = Connect(Options("ps:0"), Options("worker:0"), kBestFails, kBestFails);
  ASSERT_TRUE(connection.ok()) << connection.status().message();
  EXPECT_EQ((*connection)->transport(), "last");
  EXPECT_EQ((*connection)->choice(), "last (best: no route)");
  ExpectItWorks(*connection);
  const auto lines = warnings_.lines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].rfind("worker:0 uses last to ps:0 (127.0.0.1:", 0), 0u) << lines[0];
  EXPECT_TRUE(Contains(lines[0], "since best failed: no route; add one")) << lines[0];
}

TEST_F(ChoiceTest, OneThatTheListenerCannotOfferIsFallenBackFrom) {
  auto connection = Connect(Options("ps:0"), Options("worker:0"), kBestDoesNotListen, kAllWork);
  ASSERT_TRUE(connection.ok()) << connection.status().message();
  EXPECT_EQ((*connection)->transport(), "last");
  ASSERT_EQ(warnings_.lines().size(), 1u);
  EXPECT_TRUE(Contains(warnings_.lines()[0], "best failed: peer: the cable is out"));
}

TEST_F(ChoiceTest, OneThatDoesNotAnswerLeavesTimeForTheNext) {
  auto connection =
      Connect(Options("ps:0"), Options("worker:0"), kBestHangs, kBestHangs, Deadline::After(7));
  ASSERT_TRUE(connection.ok()) << connection.status().message();
  EXPECT_EQ((*connection)->transport(), "last");
  ExpectItWorks(*connection);
}

// The listening side sees its first lane end while it still waits for the second.
TEST_F(ChoiceTest, OneThatConnectsHalfOfTheLanesIsFallenBackFrom) {
  last_connected = nullptr;
  EngineOptions client = Options("worker:0");
  client.queue_pairs = 2;
  auto connection = Connect(Options("ps:0"), client, kSecondLaneFails, kSecondLaneFails);
  ASSERT_TRUE(connection.ok()) << connection.status().message();
  EXPECT_EQ((*connection)->choice(), "last (best: out of queue pairs)");
  ExpectItWorks(*connection);
  EXPECT_EQ(sink_.closed_count(), 0u);
}

TEST_F(ChoiceTest, ALaneThatEndsBeforeBothAreReadyEndsTheConnection) {
  EngineSink server;
  EngineSink client;
  client.on_connected = [](Connection&) {
    const int before = ends_handled;
    last_connected.exchange(nullptr)->Close();
    EXPECT_TRUE(Eventually([&] { return ends_handled > before; }));
  };
  auto listening = Engine::Create(Options("ps:0"), &server, kTcpOnly);
  ASSERT_TRUE(listening.ok()) << listening.status().message();
  auto address = (*listening)->Listen("127.0.0.1:0");
  ASSERT_TRUE(address.ok()) << address.status().message();
  auto connecting = Engine::Create(Options("worker:0"), &client, kTcpOnly);
  ASSERT_TRUE(connecting.ok()) << connecting.status().message();
  auto connection = (*connecting)->Connect(*address, Patience());
  EXPECT_TRUE(!connection.ok() || Eventually([&] { return (*connection)->closed(); }));
  // Whether it got as far as a connection depends on which side noticed first.
  const auto over = [&] {
    return server.closed_count() == 1 || (*listening)->counters().refused == 1;
  };
  EXPECT_TRUE(Eventually(over));
  EXPECT_TRUE(Eventually([&] { return (*listening)->connections().empty(); }));
}

TEST_F(ChoiceTest, OneThatIsNotThereIsNoReasonForAWarning) {
  auto there = Connect(Options("ps:0"), Options("worker:0"), kBestAbsent, kAllWork);
  ASSERT_TRUE(there.ok()) << there.status().message();
  EXPECT_EQ((*there)->choice(),
            "last (near: not at the peer: its build is without it; best: not at "
            "the peer: no device)");
  auto here = Connect(Options("ps:1"), Options("worker:1"), kAllWork, kBestAbsent);
  ASSERT_TRUE(here.ok()) << here.status().message();
  EXPECT_EQ((*here)->choice(), "last (best: no device)");
  EXPECT_TRUE(warnings_.lines().empty());
}

TEST_F(ChoiceTest, AForcedOneThatFailsIsAnErrorThatSaysWhatToDo) {
  auto refused = Connect(Options("ps:0"), Options("worker:0", "best"), kBestFails, kBestFails);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable);
  for (const std::string part : {"ps:0", "transport=\"best\"", "no route; add one", "\"auto\""}) {
    EXPECT_TRUE(Contains(refused.status().message(), part)) << refused.status().message();
  }
  auto absent = Engine::Create(Options("worker:0", "best"), &sink_, kBestAbsent);
  ASSERT_FALSE(absent.ok());
  EXPECT_TRUE(Contains(absent.status().message(), "best: no device; buy one"));
}

TEST_F(ChoiceTest, WhereNothingWorksAllReasonsAreGiven) {
  auto refused = Connect(Options("ps:0"), Options("worker:0"), kNoneWorks, kNoneWorks);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Contains(refused.status().message(), "no transport reaches ps:0"));
  EXPECT_TRUE(Contains(refused.status().message(), "best: no route; last: no device"));
}

TEST_F(ChoiceTest, OneEngineUsesAllAtOnce) {
  EngineOptions elsewhere = Options("ps:1");
  elsewhere.host.boot_id = "of another kernel";
  EngineOptions container = Options("ps:2");
  container.host.network = "net:[1]";
  Engine* const worker = Client(Options("worker:0", "ps:3=last,*=auto"), kAllWork);
  const std::pair<EngineOptions, std::string> cases[] = {
      {Options("ps:0"), "near (first choice)"},
      {elsewhere, "best (near: the peer is on another host)"},
      {container,
       "best (near: the peer is in another network namespace of this host, as "
       "containers are)"},
      {Options("ps:3"), "last (asked for)"},
  };
  std::vector<std::shared_ptr<Connection>> connections;
  for (const auto& [options, choice] : cases) {
    auto connection = worker->Connect(Serve(options, kAllWork), Patience());
    ASSERT_TRUE(connection.ok()) << connection.status().message();
    EXPECT_EQ((*connection)->choice(), choice);
    connections.push_back(*connection);
  }
  for (const auto& connection : connections) ExpectItWorks(connection);
  EXPECT_TRUE(warnings_.lines().empty());
}

TEST_F(ChoiceTest, HostsThatShareNoMemoryUseVerbsWhereTheyHaveItElseTcp) {
  EngineOptions elsewhere = Options("ps:0");
  elsewhere.host.boot_id = "of another kernel";
  auto connection = Connect(elsewhere, Options("worker:0"), Transports(), Transports());
  ASSERT_TRUE(connection.ok()) << connection.status().message();
  const bool verbs = FindTransport("verbs")->probe().ok();
  EXPECT_EQ((*connection)->transport(), verbs ? "verbs" : "tcp");
  EXPECT_TRUE(Contains((*connection)->choice(), "shm: the peer is on another host"));
  ExpectItWorks(*connection);
  EXPECT_TRUE(warnings_.lines().empty());
}

TEST_F(ChoiceTest, TheListenersRulesHoldToo) {
  const EngineOptions server = Options("ps:0", "worker:0=last,*=auto");
  auto automatic = Connect(server, Options("worker:0"), kAllWork, kAllWork);
  ASSERT_TRUE(automatic.ok()) << automatic.status().message();
  EXPECT_EQ((*automatic)->transport(), "last");
  auto forced = Connect(server, Options("worker:0", "best"), kAllWork, kAllWork);
  ASSERT_FALSE(forced.ok());
  EXPECT_TRUE(Contains(forced.status().message(),
                       "its transport=\"worker:0=last,*=auto\" does not allow this one"))
      << forced.status().message();
}

TEST_F(ChoiceTest, TheEnvironmentSaysWhatTheProgramDoesNot) {
  setenv("TF_RDMABATCH_TRANSPORT", "last", 1);
  auto connection = Connect(Options("ps:0", ""), Options("worker:0", ""), kAllWork, kAllWork);
  auto explicitly = Connect(Options("ps:1"), Options("worker:1"), kAllWork, kAllWork);
  setenv("TF_RDMABATCH_TRANSPORT", "pigeon", 1);
  const Status wrong = Engine::Create(Options("ps:2", ""), &sink_, kAllWork).status();
  unsetenv("TF_RDMABATCH_TRANSPORT");
  ASSERT_TRUE(connection.ok() && explicitly.ok());
  EXPECT_EQ((*connection)->transport(), "last");
  EXPECT_EQ((*explicitly)->transport(), "near");
  EXPECT_EQ(wrong.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Contains(wrong.message(), "TF_RDMABATCH_TRANSPORT: no transport \"pigeon\""));
}

TEST_F(ChoiceTest, OtherVersionsAreRefusedOnBothSidesAndOthersGoOn) {
  EngineOptions server = Options("ps:0");
  server.host.name = "node2";
  server.software[0].version = "99.1.0";
  EngineOptions client = Options("worker:0");
  client.host.name = "node1";
  auto refused = Connect(server, client, kAllWork, kAllWork);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Contains(refused.status().message(), "worker:0 on host node1 has tf_rdmabatch"))
      << refused.status().message();
  EXPECT_TRUE(Contains(refused.status().message(), "ps:0 on host node2 has 99.1.0"));
  ASSERT_TRUE(Eventually([&] { return engines_[0]->counters().refused == 1; }));
  EXPECT_TRUE(Contains(warnings_.lines().at(0), "worker:0 on host node1")) << warnings_.lines()[0];
  client.software = server.software;
  auto same =
      Client(client, kAllWork)->Connect(engines_[0]->Listen("127.0.0.1:0").value(), Patience());
  EXPECT_TRUE(same.ok()) << same.status().message();
}

}  // namespace
}  // namespace rdmabatch::testing
