// The receiving half of a tcp connection: any bytes, in any pieces, write only to what was exported
// for writing and end at worst in a broken link. Records: what is accepted is what would be
// written.
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "tf_rdmabatch/cc/transport/tcp/input.h"
#include "tf_rdmabatch/cc/transport/tcp/wire.h"

namespace {

using namespace rdmabatch;       // NOLINT(google-build-using-namespace)
using namespace rdmabatch::tcp;  // NOLINT(google-build-using-namespace)

template <typename Record>
void CheckRecord(std::string_view input) {
  Record record;
  if (Unpack(input, &record) && Pack(record) != input) __builtin_trap();
}

std::shared_ptr<Registration> Register(std::vector<uint8_t>* memory, Access access) {
  auto registration = std::make_shared<Registration>();
  registration->address = memory->data();
  registration->bytes = memory->size();
  registration->access = access;
  return registration;
}

void CheckStream(const uint8_t* data, size_t size) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) __builtin_trap();
  const UniqueFd peer(ends[1]);
  Link link(Stream{UniqueFd(ends[0]), nullptr}, -1);
  Counters counters;
  EndpointOptions options;
  options.counters = &counters;
  options.send_queue_depth = 8;
  SendQueue queue(options);
  Output output(&link, &queue, &counters, 4);
  Exports exports;
  std::vector<uint8_t> writable(300);
  std::vector<uint8_t> readable(300, 7);
  std::vector<uint8_t> local(64);
  const Region first = *exports.Add(Register(&writable, Access::kRemoteWrite));
  (void)*exports.Add(Register(&readable, Access::kRemoteRead));
  WorkRequest read;
  read.op = OpCode::kRead;
  read.length = 64;
  read.local = local.data();
  (void)queue.Append({&read, 1});
  Input input(&link, &queue, &output, &exports, options);
  // Regions have random numbers; here the bytes give them as 0 and 1.
  std::vector<uint8_t> bytes(data, data + size);
  for (size_t at = 0; at + sizeof(Frame) <= size; at += sizeof(Frame)) {
    uint32_t region;
    std::memcpy(&region, &bytes[at + 8], sizeof(region));
    if (region > 1) continue;
    region += first.id;
    std::memcpy(&bytes[at + 8], &region, sizeof(region));
  }
  Completion completions[4];
  for (size_t at = 0; at < size && !input.ended();) {
    const size_t piece = std::min<size_t>(size - at, 1 + bytes[at] % 61);
    if (send(peer.get(), &bytes[at], piece, MSG_NOSIGNAL) < 0) break;
    at += piece;
    while (input.Take(completions, true) != 0) continue;
  }
  for (const uint8_t byte : readable) {
    if (byte != 7) __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  CheckRecord<Offer>(input);
  CheckRecord<Greeting>(input);
  CheckRecord<Region>(input);
  CheckStream(data, size);
  return 0;
}
