#include "tf_rdmabatch/cc/memory/shared_view.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tf_rdmabatch/cc/memory/segment.h"

namespace rdmabatch {
namespace {

constexpr uint64_t kBytes = 3 * 4096 + 100;

// A segment, and a mapping of it as a peer has it.
struct Shared {
  Shared() : own(Segment::Create(8 * 4096)) {
    EXPECT_TRUE(own->SealAgainstWriters().ok());
    peers = Segment::Map(fcntl(own->fd(), F_DUPFD_CLOEXEC, 0), own->size(), false);
  }
  Result<Segment> own;
  Result<Segment> peers = Status();
};

TEST(SharedView, ShowsWhatIsWritten) {
  Shared shared;
  ASSERT_TRUE(shared.peers.ok()) << shared.peers.status().message();
  auto view = SharedView::Of(shared.peers->data() + 4096, kBytes);
  ASSERT_TRUE(view.ok()) << view.status().message();
  EXPECT_EQ((*view)->bytes(), kBytes);
  shared.own->data()[4096] = 7;
  EXPECT_EQ((*view)->data()[0], 7);
  // It needs the mapping that it was made of no more.
  shared.peers = Segment();
  shared.own->data()[4096 + kBytes - 1] = 9;
  EXPECT_EQ((*view)->data()[kBytes - 1], 9);
}

TEST(SharedView, DetachedItKeepsWhatItHad) {
  Shared shared;
  ASSERT_TRUE(shared.peers.ok());
  auto view = SharedView::Of(shared.peers->data(), kBytes);
  ASSERT_TRUE(view.ok());
  shared.own->data()[kBytes - 1] = 7;
  const uint8_t* const data = (*view)->data();
  ASSERT_TRUE((*view)->Detach().ok());
  shared.own->data()[kBytes - 1] = 8;
  EXPECT_EQ((*view)->data(), data);
  EXPECT_EQ(data[kBytes - 1], 7);
  EXPECT_EQ(shared.peers->data()[kBytes - 1], 8);
  // A new view of the same pages shows them.
  auto next = SharedView::Of(shared.peers->data(), kBytes);
  ASSERT_TRUE(next.ok());
  EXPECT_EQ((*next)->data()[kBytes - 1], 8);
}

TEST(SharedView, ReadersNoticeNothing) {
  Shared shared;
  ASSERT_TRUE(shared.peers.ok());
  for (uint64_t i = 0; i < kBytes; ++i) shared.own->data()[i] = static_cast<uint8_t>(1 + i % 200);
  for (int round = 0; round < 50; ++round) {
    auto view = SharedView::Of(shared.peers->data(), kBytes);
    ASSERT_TRUE(view.ok());
    std::atomic<bool> stop{false};
    std::atomic<bool> wrong{false};
    std::thread reader([&] {
      while (!stop) {
        for (uint64_t i = 0; i < kBytes; ++i) {
          if (*const_cast<volatile const uint8_t*>((*view)->data() + i) != 1 + i % 200) {
            wrong = true;
          }
        }
      }
    });
    ASSERT_TRUE((*view)->Detach().ok());
    stop = true;
    reader.join();
    EXPECT_FALSE(wrong);
  }
}

TEST(SharedView, NeedsWholePagesOfSharedMemory) {
  Shared shared;
  ASSERT_TRUE(shared.peers.ok());
  EXPECT_EQ(SharedView::Of(shared.peers->data() + 64, 100).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(SharedView::Of(shared.peers->data(), 0).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace rdmabatch
