#include "tf_rdmabatch/cc/memory/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "tf_rdmabatch/cc/base/bits.h"
#include "tf_rdmabatch/cc/base/unique_fd.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace rdmabatch {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 47;  // what a process can address

Status Errno(StatusCode code, const std::string& what) {
  return {code, what + ": " + std::strerror(errno)};
}

std::string Size(size_t bytes) { return std::to_string(bytes >> 10) + " KiB"; }

// A line of /proc/meminfo in bytes, or `otherwise`.
size_t MemInfo(const char* field, size_t otherwise) {
  std::FILE* file = std::fopen("/proc/meminfo", "re");
  if (file == nullptr) return otherwise;
  size_t bytes = otherwise;
  char line[128];
  const size_t length = std::strlen(field);
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    uint64_t kib = 0;
    if (std::strncmp(line, field, length) == 0 &&
        std::sscanf(line + length, ": %" SCNu64 " kB", &kib) == 1) {
      bytes = static_cast<size_t>(kib) << 10;
      break;
    }
  }
  std::fclose(file);
  return bytes;
}

// Allocates every page now, so that memory that cannot be had is an error here and not a signal
// later.
Status Touch(uint8_t* data, size_t bytes, int fd) {
  if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return Status::Ok();
  if (errno != EINVAL)
    return Errno(StatusCode::kResourceExhausted, "cannot allocate " + Size(bytes));
  if (fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0) {  // Linux before 5.14
    return Errno(StatusCode::kResourceExhausted, "cannot allocate " + Size(bytes));
  }
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (size_t i = 0; i < bytes; i += page) static_cast<volatile uint8_t*>(data)[i] = 0;
  return Status::Ok();
}

struct Mapping {
  uint8_t* data;
  size_t bytes;
  UniqueFd fd;
};

Result<Mapping> CreateWith(size_t bytes, size_t page, unsigned int flags, bool touch) {
  bytes = AlignUp(bytes, page);
  UniqueFd fd(memfd_create("rdmabatch", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
  if (!fd.valid()) return Errno(StatusCode::kResourceExhausted, "memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return Errno(StatusCode::kResourceExhausted, "cannot size a segment of " + Size(bytes));
  }
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return Errno(StatusCode::kInternal, "cannot seal a segment");
  }
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) {
    return Errno(StatusCode::kResourceExhausted, "cannot map a segment of " + Size(bytes));
  }
  auto* address = static_cast<uint8_t*>(data);
  if (touch) {
    if (Status status = Touch(address, bytes, fd.get()); !status.ok()) {
      munmap(data, bytes);
      return status;
    }
  }
  return Mapping{address, bytes, std::move(fd)};
}

}  // namespace

Result<Segment> Segment::Create(size_t bytes, bool huge_pages, bool touch) {
  if (bytes == 0) return Status(StatusCode::kInvalidArgument, "a segment of 0 bytes");
  if (bytes > kMaxBytes) {
    return Status(StatusCode::kResourceExhausted,
                  "a segment of " + Size(bytes) + " cannot be addressed");
  }
  if (huge_pages) {
    const size_t huge_page = MemInfo("Hugepagesize", size_t{2} << 20);
    auto huge = CreateWith(bytes, huge_page, MFD_HUGETLB, touch);
    if (huge.ok()) return Segment(huge->data, huge->bytes, huge->fd.release());
  }
  // Beyond what is available, touching pages would not fail: it would kill a process.
  if (const size_t available = MemInfo("MemAvailable", kMaxBytes); touch && bytes > available) {
    return Status(
        StatusCode::kResourceExhausted,
        "a segment of " + Size(bytes) + " does not fit in the " + Size(available) + " available");
  }
  auto plain = CreateWith(bytes, static_cast<size_t>(sysconf(_SC_PAGESIZE)), 0, touch);
  if (!plain.ok()) return plain.status();
  return Segment(plain->data, plain->bytes, plain->fd.release());
}

Result<Segment> Segment::Map(int fd, size_t bytes, bool writable) {
  UniqueFd owned(fd);
  if (bytes == 0 || bytes > kMaxBytes) {
    return Status(StatusCode::kDataLoss, "a peer's segment of " + std::to_string(bytes) + " bytes");
  }
  struct stat info;
  if (fstat(fd, &info) != 0) return Errno(StatusCode::kDataLoss, "a peer's segment");
  if (info.st_size < 0 || static_cast<uint64_t>(info.st_size) < bytes) {
    return Status(StatusCode::kDataLoss, "a peer's segment has " + std::to_string(info.st_size) +
                                             " of " + std::to_string(bytes) + " bytes");
  }
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return Status(StatusCode::kDataLoss, "a peer's segment could shrink while it is mapped");
  }
  struct statfs fs;
  if (fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC &&
      bytes % static_cast<size_t>(fs.f_bsize) != 0) {
    return Status(StatusCode::kDataLoss, "a peer's segment ends within a huge page");
  }
  void* data =
      mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    const bool refused = errno == EPERM || errno == EACCES;
    return Errno(refused ? StatusCode::kPermissionDenied : StatusCode::kResourceExhausted,
                 "cannot map a peer's segment of " + Size(bytes));
  }
  return Segment(static_cast<uint8_t*>(data), bytes, -1);
}

Segment::Segment(Segment&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      fd_(std::exchange(other.fd_, -1)) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  return *this;
}

Segment::~Segment() {
  if (data_ != nullptr) munmap(data_, size_);
  if (fd_ >= 0) close(fd_);
}

Status Segment::SealAgainstWriters() const {
  if (fcntl(fd_, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) != 0) {
    return Errno(StatusCode::kFailedPrecondition,
                 "cannot seal a segment against writers (needs Linux 5.1)");
  }
  return Status::Ok();
}

}  // namespace rdmabatch
