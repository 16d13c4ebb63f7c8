// A peer killed with SIGKILL is noticed, on every device. The peer is this program run anew: a
// fork would share the open RDMA devices with the test, which then keep its queue pairs alive.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/cc/transport/harness.h"

namespace rdmabatch::testing {
namespace {

constexpr char kLinkVariable[] = "RDMABATCH_TEST_LINK";

bool IsReadable(int fd, int timeout_ms) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, timeout_ms) == 1;
}

// The peer's whole life: connect, say so, wait to be killed.
TEST(VerbsKillPeer, DISABLED_Main) {
  const char* fd = std::getenv(kLinkVariable);
  if (fd == nullptr) GTEST_SKIP() << "started by VerbsKillTest only";
  PeerProcess::Link link{UniqueFd(std::atoi(fd))};
  auto transport = FindTransport("verbs")->create({});
  ASSERT_TRUE(transport.ok()) << transport.status().message();
  Side side;
  side.transport = std::move(*transport);
  side.Register();
  EndpointOptions options;
  options.counters = side.counters.get();
  ASSERT_TRUE(ConnectOver(&link, options, &side));
  std::string never;
  link.Get(&never);
}

class VerbsKillTest : public TransportTest {
 protected:
  void SetUp() override {
    TransportTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    link_ = std::make_unique<PeerProcess::Link>(UniqueFd(ends[0]));
    UniqueFd theirs(ends[1]);
    const std::string number = std::to_string(theirs.get());
    peer_ = std::make_unique<PeerProcess>([&](PeerProcess::Link&) {
      close(ends[0]);
      setenv(kLinkVariable, number.c_str(), 1);
      execl("/proc/self/exe", "peer", "--gtest_filter=VerbsKillPeer.DISABLED_Main",
            "--gtest_also_run_disabled_tests", "--gtest_brief=1", static_cast<char*>(nullptr));
      return 1;
    });
    theirs.reset();
    side_.transport = NewTransport();
    side_.Register();
    EndpointOptions options = Options(5);
    options.counters = side_.counters.get();
    ASSERT_TRUE(AcceptOver(link_.get(), LocalIp("verbs"), options, &side_));
    EXPECT_FALSE(IsReadable(side_.endpoint->control_fd(), 20));
    EXPECT_TRUE(side_.endpoint->CheckControl().ok());
  }

  // Exactly one failing completion, and then nothing.
  void ExpectBrokenOnce(Deadline deadline) {
    const auto news = side_.TakeArrivals(1, deadline);
    ASSERT_EQ(news.size(), 1u);
    EXPECT_FALSE(news[0].ok);
    EXPECT_NE(news[0].error, nullptr);
    EXPECT_EQ(news[0].id, 5u);
    Completion done;
    EXPECT_EQ(side_.transport->PollReceive({&done, 1}), 0u);
  }

  // While it is open, the peer lives.
  std::unique_ptr<PeerProcess::Link> link_;
  std::unique_ptr<PeerProcess> peer_;
  Side side_;
};

TEST_P(VerbsKillTest, AnIdleReceiverNotices) {
  side_.transport->PrepareSleep();
  const Deadline deadline = Patience();
  peer_->Kill();
  ASSERT_TRUE(IsReadable(side_.endpoint->control_fd(), deadline.RemainingMs(60000)));
  Status status = side_.endpoint->CheckControl();
  while (status.ok() && !deadline.expired()) {
    IsReadable(side_.endpoint->control_fd(), 10);
    status = side_.endpoint->CheckControl();
  }
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_FALSE(deadline.expired());
  // The flushed receives wake the progress thread.
  EXPECT_TRUE(IsReadable(side_.transport->event_fd(), deadline.RemainingMs(60000)));
  side_.transport->FinishSleep();
  ExpectBrokenOnce(deadline);
}

TEST_P(VerbsKillTest, ASenderNotices) {
  const std::vector<WorkRequest> chain(8, side_.Write(0, 0, 65536));
  Completion done[8];
  bool failed = false;
  bool killed = false;
  int chains = 0;
  Deadline deadline = Patience();
  while (!failed && !deadline.expired()) {
    side_.endpoint->Post({chain.data(), chain.size()});
    if (++chains == 100) {
      peer_->Kill();
      killed = true;
      deadline = Patience();
    }
    (void)side_.endpoint->CheckControl();
    const size_t count = side_.endpoint->PollSend(done);
    if (count != 0 && !done[count - 1].ok) failed = true;
  }
  EXPECT_TRUE(killed);
  EXPECT_TRUE(failed);
  EXPECT_EQ(side_.endpoint->PollSend(done), 0u);
  ExpectBrokenOnce(deadline);
}

std::vector<Subject> VerbsSubjects() {
  std::vector<Subject> subjects;
  for (const Subject& subject : Subjects()) {
    if (subject.transport == "verbs") subjects.push_back(subject);
  }
  return subjects;
}

INSTANTIATE_TEST_SUITE_P(Devices, VerbsKillTest, ::testing::ValuesIn(VerbsSubjects()),
                         [](const auto& info) { return ::testing::PrintToString(info.param); });

}  // namespace
}  // namespace rdmabatch::testing
