// transport_peer TRANSPORT: exits with 0 if that transport can run here, else says why not.
// transport_peer TRANSPORT IP: one endpoint, driven by lines on stdin, for peers that are written
// with something else. It listens at IP and prints `offer HEX`; once the peer has connected it
// prints `memory HEX` (64 KiB, remotely writable). Then it takes commands and answers each with a
// line:
//   memory HEX             the peer's memory                                   -> ok
//   write LENGTH SEED IMM  writes a pattern in 4 KiB pieces to the start of the peer's memory, and
//   a
//                          word with the immediate IMM to its last 8 bytes     -> sent
//   expect LENGTH SEED     waits for an arrival and compares its own memory    -> arrival IMM
//   ok|bad broken                 waits until the connection is noticed to be gone    -> broken
//   REASON
// The pattern's byte i is (SEED + i) mod 251. Ends at the end of stdin.
#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/cc/tools/need.h"
#include "tf_rdmabatch/cc/transport/registry.h"

namespace rdmabatch {
namespace {

constexpr uint32_t kBytes = 64 * 1024;
constexpr uint32_t kPiece = 4096;
constexpr double kPatience = 60;

std::string ToHex(const std::string& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char byte : bytes) {
    hex += kDigits[(static_cast<uint8_t>(byte)) >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

uint8_t Pattern(uint32_t seed, uint32_t i) { return static_cast<uint8_t>((seed + i) % 251); }

class Peer {
 public:
  Peer(const TransportFactory& factory, const std::string& ip) {
    transport_ = Need(factory.create({}), "create");
    arena_segment_ = Need(Segment::Create(kBytes), "memory");
    staging_segment_ = Need(Segment::Create(kBytes), "memory");
    arena_ = Need(transport_->RegisterMemory(arena_segment_, Access::kRemoteWrite), "register");
    staging_ = Need(transport_->RegisterMemory(staging_segment_, Access::kLocal), "register");
    auto acceptor = Need(transport_->Listen(ip), "listen");
    std::cout << "offer " << ToHex(acceptor->offer()) << std::endl;
    EndpointOptions options;
    options.counters = &counters_;
    endpoint_ = Need(acceptor->Accept(options, Deadline::After(kPatience)), "accept");
    std::cout << "memory " << ToHex(Need(endpoint_->Export(arena_), "export")) << std::endl;
  }

  ~Peer() {
    endpoint_.reset();
    transport_->Deregister(arena_);
    transport_->Deregister(staging_);
  }

  std::string Run(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "memory") {
      std::string hex;
      words >> hex;
      theirs_ = Need(endpoint_->Import(FromHex(hex)), "import");
      return "ok";
    }
    uint32_t length = 0;
    uint32_t seed = 0;
    uint32_t immediate = 0;
    words >> length >> seed >> immediate;
    if (command == "write" && length < kBytes) return Write(length, seed, immediate);
    if (command == "expect" && length < kBytes) return Expect(length, seed);
    if (command == "broken") return AwaitBroken();
    return "unknown command";
  }

 private:
  std::string Write(uint32_t length, uint32_t seed, uint32_t immediate) {
    for (uint32_t i = 0; i < length; ++i) staging_.address[i] = Pattern(seed, i);
    std::vector<WorkRequest> chain;
    const auto add = [&](OpCode op, uint64_t local, uint64_t remote, uint32_t bytes) {
      WorkRequest request;
      request.op = op;
      request.local = staging_.address + local;
      request.local_key = staging_.local_key;
      request.remote = theirs_.address + remote;
      request.remote_key = theirs_.key;
      request.length = bytes;
      request.immediate = immediate;
      request.inline_data = bytes <= endpoint_->max_inline();
      chain.push_back(request);
    };
    for (uint32_t at = 0; at < length; at += kPiece) {
      add(OpCode::kWrite, at, at, std::min(kPiece, length - at));
    }
    add(OpCode::kWriteImm, 0, theirs_.bytes - 8, 8);
    if (endpoint_->Post({chain.data(), chain.size()}) != chain.size()) return "not posted";
    Completion done;
    const Deadline deadline = Deadline::After(kPatience);
    while (endpoint_->PollSend({&done, 1}) == 0) {
      if (deadline.expired()) return "timeout";
    }
    return done.ok ? "sent" : done.error;
  }

  std::string Expect(uint32_t length, uint32_t seed) {
    Completion arrival;
    const Deadline deadline = Deadline::After(kPatience);
    while (transport_->PollReceive({&arrival, 1}) == 0) {
      if (deadline.expired()) return "timeout";
    }
    if (!arrival.ok) return arrival.error;
    bool same = true;
    for (uint32_t i = 0; i < length; ++i) same &= arena_.address[i] == Pattern(seed, i);
    return "arrival " + std::to_string(arrival.immediate) + (same ? " ok" : " bad");
  }

  std::string AwaitBroken() {
    const Deadline deadline = Deadline::After(kPatience);
    while (!deadline.expired()) {
      const Status status = endpoint_->CheckControl();
      if (!status.ok()) return "broken " + status.message();
      pollfd entry{endpoint_->control_fd(), POLLIN, 0};
      poll(&entry, 1, 100);
    }
    return "timeout";
  }

  Counters counters_;
  std::unique_ptr<Transport> transport_;
  Segment arena_segment_;
  Segment staging_segment_;
  LocalMemory arena_;
  LocalMemory staging_;
  RemoteMemory theirs_;
  std::unique_ptr<Endpoint> endpoint_;
};

}  // namespace
}  // namespace rdmabatch

int main(int argc, char** argv) {
  const rdmabatch::TransportFactory* factory =
      argc == 2 || argc == 3 ? rdmabatch::FindTransport(argv[1]) : nullptr;
  if (factory == nullptr) {
    std::fprintf(stderr, "usage: transport_peer shm|verbs|tcp [IP]\n");
    return 2;
  }
  if (argc == 2) {
    const rdmabatch::Status status = factory->probe();
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
    return status.ok() ? 0 : 1;
  }
  rdmabatch::Peer peer(*factory, argv[2]);
  std::string line;
  while (std::getline(std::cin, line)) std::cout << peer.Run(line) << std::endl;
  return 0;
}
