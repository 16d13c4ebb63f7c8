#include "tf_rdmabatch/cc/memory/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "tf_rdmabatch/cc/base/unique_fd.h"

namespace rdmabatch {
namespace {

const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

int Duplicate(const Segment& segment) { return fcntl(segment.fd(), F_DUPFD_CLOEXEC, 0); }

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(SegmentTest, RoundsUpToPagesAndIsZero) {
  auto segment = Segment::Create(kPage + 1);
  ASSERT_TRUE(segment.ok()) << segment.status().message();
  EXPECT_EQ(segment->size(), 2 * kPage);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(segment->data()) % kPage, 0u);
  for (size_t i = 0; i < segment->size(); ++i) ASSERT_EQ(segment->data()[i], 0);
}

TEST(SegmentTest, TouchAllocatesAndNoTouchDoesNot) {
  for (bool touch : {true, false}) {
    auto segment = Segment::Create(64 * kPage, false, touch);
    ASSERT_TRUE(segment.ok());
    struct stat info;
    ASSERT_EQ(fstat(segment->fd(), &info), 0);
    EXPECT_EQ(static_cast<size_t>(info.st_blocks) * 512, touch ? 64 * kPage : 0);
  }
}

TEST(SegmentTest, HugePagesFallBackToPlainOnes) {
  auto segment = Segment::Create(3 << 20, /*huge_pages=*/true);
  ASSERT_TRUE(segment.ok()) << segment.status().message();
  EXPECT_GE(segment->size(), size_t{3} << 20);
  segment->data()[segment->size() - 1] = 1;
}

TEST(SegmentTest, RefusesWhatCannotBeHad) {
  EXPECT_EQ(Segment::Create(0).status().code(), StatusCode::kInvalidArgument);
  for (int shift : {43, 46, 50, 63}) {  // the first ones can be addressed, but not allocated
    EXPECT_EQ(Segment::Create(size_t{1} << shift).status().code(), StatusCode::kResourceExhausted)
        << shift;
  }
  EXPECT_EQ(Segment::Create(SIZE_MAX).status().code(), StatusCode::kResourceExhausted);
}

TEST(SegmentTest, MapSharesMemory) {
  auto segment = Segment::Create(2 * kPage);
  ASSERT_TRUE(segment.ok());
  const int fd = Duplicate(*segment);
  auto mapped = Segment::Map(fd, 2 * kPage, true);
  ASSERT_TRUE(mapped.ok()) << mapped.status().message();
  EXPECT_FALSE(IsOpen(fd));
  EXPECT_EQ(mapped->fd(), -1);
  EXPECT_NE(mapped->data(), segment->data());
  std::memset(segment->data(), 7, segment->size());
  EXPECT_EQ(std::memcmp(segment->data(), mapped->data(), mapped->size()), 0);
  mapped->data()[0] = 9;
  EXPECT_EQ(segment->data()[0], 9);
}

TEST(SegmentTest, MappingOutlivesTheOwner) {
  auto segment = Segment::Create(kPage);
  ASSERT_TRUE(segment.ok());
  segment->data()[5] = 5;
  auto mapped = Segment::Map(Duplicate(*segment), kPage, false);
  ASSERT_TRUE(mapped.ok());
  *segment = Segment();
  EXPECT_EQ(mapped->data()[5], 5);
}

TEST(SegmentTest, MapRefusesABadPeersFile) {
  auto segment = Segment::Create(kPage);
  ASSERT_TRUE(segment.ok());
  for (size_t bytes : {size_t{0}, kPage + 1, size_t{1} << 46, SIZE_MAX}) {
    const int fd = Duplicate(*segment);
    EXPECT_EQ(Segment::Map(fd, bytes, true).status().code(), StatusCode::kDataLoss) << bytes;
    EXPECT_FALSE(IsOpen(fd)) << "Map owns the descriptor";
  }
  EXPECT_EQ(Segment::Map(-1, kPage, true).status().code(), StatusCode::kDataLoss);
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  UniqueFd writer(pipes[1]);
  EXPECT_EQ(Segment::Map(pipes[0], kPage, true).status().code(), StatusCode::kDataLoss);
}

TEST(SegmentTest, MapRefusesAFileThatCouldShrink) {
  const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(fd, static_cast<off_t>(kPage)), 0);
  EXPECT_EQ(Segment::Map(fd, kPage, true).status().code(), StatusCode::kDataLoss);
}

TEST(SegmentTest, CannotBeResized) {
  auto segment = Segment::Create(kPage);
  ASSERT_TRUE(segment.ok());
  EXPECT_NE(ftruncate(segment->fd(), 0), 0);
  EXPECT_NE(ftruncate(segment->fd(), static_cast<off_t>(2 * kPage)), 0);
}

TEST(SegmentTest, SealedAgainstWritersIsReadOnlyForPeers) {
  auto segment = Segment::Create(kPage);
  ASSERT_TRUE(segment.ok());
  ASSERT_TRUE(segment->SealAgainstWriters().ok());
  ASSERT_TRUE(segment->SealAgainstWriters().ok());
  EXPECT_EQ(Segment::Map(Duplicate(*segment), kPage, true).status().code(),
            StatusCode::kPermissionDenied);
  auto mapped = Segment::Map(Duplicate(*segment), kPage, false);
  ASSERT_TRUE(mapped.ok()) << mapped.status().message();
  EXPECT_NE(mprotect(mapped->data(), kPage, PROT_READ | PROT_WRITE), 0);
  segment->data()[1] = 42;  // the owner's own mapping stays writable
  EXPECT_EQ(mapped->data()[1], 42);
}

TEST(SegmentTest, SealNeedsASegment) {
  EXPECT_EQ(Segment().SealAgainstWriters().code(), StatusCode::kFailedPrecondition);
}

TEST(SegmentTest, MovesOwnership) {
  auto segment = Segment::Create(kPage);
  ASSERT_TRUE(segment.ok());
  const int fd = segment->fd();
  uint8_t* data = segment->data();
  {
    Segment moved(std::move(*segment));
    EXPECT_EQ(moved.data(), data);
    EXPECT_EQ(segment->data(), nullptr);
    EXPECT_EQ(segment->size(), 0u);
    Segment assigned;
    assigned = std::move(moved);
    EXPECT_EQ(assigned.fd(), fd);
    EXPECT_TRUE(IsOpen(fd));
  }
  EXPECT_FALSE(IsOpen(fd));
}

}  // namespace
}  // namespace rdmabatch
