// A peer whose host is no longer reached. Two network namespaces stand for the hosts.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/cc/transport/harness.h"

namespace rdmabatch::testing {
namespace {

constexpr char kNamespace[] = "tcp-test";
constexpr char kHere[] = "10.213.7.1";
constexpr char kThere[] = "10.213.7.2";

bool Run(const std::string& command) {
  return std::system((command + " 2>/dev/null").c_str()) == 0;
}

// A namespace that holds the other end of a cable. The names are the host's: another run that tests
// at the same time waits for its turn.
class Cable {
 public:
  Cable() : turn_(open("/tmp/rdmabatch-tcp-test.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    (void)flock(turn_.get(), LOCK_EX);
    Remove();
    const std::string in = std::string(" netns ") + kNamespace;
    made_ = Run(std::string("ip netns add ") + kNamespace) &&
            Run("ip link add tcp-here type veth peer name tcp-there" + in) &&
            Run(std::string("ip addr add ") + kHere + "/24 dev tcp-here") &&
            Run("ip link set tcp-here up") &&
            Run(std::string("ip -n ") + kNamespace + " addr add " + kThere + "/24 dev tcp-there") &&
            Run(std::string("ip -n ") + kNamespace + " link set tcp-there up");
  }
  ~Cable() { Remove(); }
  bool made() const { return made_; }
  // What is sent is lost, and nobody is told.
  static bool Cut() { return Run(std::string("ip -n ") + kNamespace + " link set tcp-there down"); }

 private:
  static void Remove() {
    (void)Run("ip link del tcp-here");
    (void)Run(std::string("ip netns del ") + kNamespace);
  }
  const UniqueFd turn_;
  bool made_ = false;
};

// Accepts in the other namespace, and takes what comes until it is killed.
const PeerRole kRemote("remote", [](PeerProcess::Link* link, const Subject& subject) {
  const int fd = open((std::string("/run/netns/") + kNamespace).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) return 1;
  Side side;
  side.transport = NewTransport(subject);
  if (side.transport == nullptr) return 2;
  side.Register();
  EndpointOptions options;
  options.counters = side.counters.get();
  if (!AcceptOver(link, kThere, options, &side)) return 3;
  for (pollfd entry{link->fd(), POLLIN, 0}; poll(&entry, 1, 1) == 0;) side.Poll();
  return 0;
});

class TcpPartition : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
    cable_ = std::make_unique<Cable>();
    if (!cable_->made()) GTEST_SKIP() << "this kernel has no network namespaces or veth devices";
    peer_ = std::make_unique<PeerProcess>("remote", Subject{"tcp", ""});
    side_.transport = NewTransport({"tcp", ""});
    ASSERT_NE(side_.transport, nullptr);
    side_.Register();
    EndpointOptions options;
    options.counters = side_.counters.get();
    ASSERT_TRUE(ConnectOver(&peer_->link(), options, &side_));
  }

  // As a progress thread does, which sleeps while nothing happens.
  std::vector<Completion> SleepUntilArrival(double seconds) {
    Completion arrivals[1];
    for (const Deadline deadline = Deadline::After(seconds); !deadline.expired();) {
      if (side_.transport->PollReceive(arrivals) != 0) return {arrivals[0]};
      pollfd entry{side_.transport->event_fd(), POLLIN, 0};
      poll(&entry, 1, deadline.RemainingMs(1000));
    }
    return {};
  }
  void ExpectSilence() {
    const auto arrivals = SleepUntilArrival(kPatience);
    ASSERT_EQ(arrivals.size(), 1u);
    EXPECT_FALSE(arrivals[0].ok);
    EXPECT_NE(std::string(arrivals[0].error).find("does not answer"), std::string::npos)
        << arrivals[0].error;
  }

  std::unique_ptr<Cable> cable_;
  std::unique_ptr<PeerProcess> peer_;
  Side side_;
};

TEST_F(TcpPartition, AnIdlePeerThatAnswersLives) {
  EXPECT_TRUE(SleepUntilArrival(3).empty());
  EXPECT_TRUE(side_.endpoint->CheckControl().ok());
}

TEST_F(TcpPartition, AnIdlePeerThatIsCutOffIsNoticed) {
  ASSERT_TRUE(Cable::Cut());
  ExpectSilence();
}

TEST_F(TcpPartition, ABusyPeerThatIsCutOffIsNoticed) {
  ASSERT_TRUE(side_.PostAll(Chain({side_.Write(0, 0, kArenaBytes), side_.WriteImm(0, 0, 8, 1)}),
                            Patience()));
  ASSERT_TRUE(Cable::Cut());
  ASSERT_TRUE(side_.PostAll(Chain({side_.WriteImm(0, 0, 8, 2)}), Patience()));
  ExpectSilence();
}

// Its window is full, its kernel answers.
TEST_F(TcpPartition, APeerThatIsStoppedLives) {
  ASSERT_TRUE(peer_->Stop());
  std::vector<WorkRequest> chain(64, side_.Write(0, 0, kArenaBytes));
  ASSERT_EQ(side_.endpoint->Post(Chain(chain)), chain.size());
  EXPECT_TRUE(SleepUntilArrival(6).empty());
  EXPECT_TRUE(side_.endpoint->CheckControl().ok());
  ASSERT_TRUE(peer_->Continue());
  EXPECT_EQ(side_.TakeSends(1, Patience()).size(), 1u);
}

}  // namespace
}  // namespace rdmabatch::testing
