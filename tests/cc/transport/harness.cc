#include "tests/cc/transport/harness.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <sstream>
#include <thread>
#include <utility>

namespace rdmabatch::testing {
namespace {

// Polls until `count` completions are there, one is not ok, or the deadline expires.
std::vector<Completion> Take(size_t count, Deadline deadline,
                             const std::function<size_t(Span<Completion>)>& poll) {
  std::vector<Completion> taken;
  Completion buffer[32];
  while (taken.size() < count) {
    const size_t n = poll(Span<Completion>(buffer, std::min<size_t>(count - taken.size(), 32)));
    taken.insert(taken.end(), buffer, buffer + n);
    if (n != 0 && !taken.back().ok) break;
    if (n == 0) {
      if (deadline.expired()) break;
      std::this_thread::yield();
    }
  }
  return taken;
}

Memory NewMemory(Transport* transport, uint64_t bytes, Access access) {
  Memory memory;
  auto segment = Segment::Create(bytes);
  if (!segment.ok()) {
    ADD_FAILURE() << segment.status().message();
    return memory;
  }
  memory.segment = std::move(*segment);
  auto local = transport->RegisterMemory(memory.segment, access);
  if (local.ok()) {
    memory.local = *local;
  } else {
    ADD_FAILURE() << local.status().message();
  }
  return memory;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Subject& subject) {
  return out << subject.transport << (subject.device.empty() ? "" : "_") << subject.device
             << (subject.tls ? "_tls" : "");
}

std::vector<Subject> Subjects() {
  std::vector<Subject> subjects;
  for (const TransportFactory& factory : Transports()) {
    const char* devices = std::getenv("TF_RDMABATCH_DEVICE");
    std::stringstream list(std::string(factory.name) == "verbs" && devices != nullptr ? devices
                                                                                      : "");
    std::string device;
    size_t named = 0;
    for (; std::getline(list, device, ','); ++named) subjects.push_back({factory.name, device});
    if (named == 0) subjects.push_back({factory.name, ""});
  }
  subjects.push_back({"tcp", "", /*tls=*/true});
  return subjects;
}

Side::~Side() {
  endpoint.reset();
  if (transport == nullptr) return;
  for (Memory* memory : {&arena, &published, &staging}) {
    if (memory->local.address != nullptr) transport->Deregister(memory->local);
  }
}

void Side::Register(uint64_t bytes) {
  arena = NewMemory(transport.get(), bytes, Access::kRemoteWrite);
  published = NewMemory(transport.get(), bytes, Access::kRemoteRead);
  staging = NewMemory(transport.get(), bytes, Access::kLocal);
}

std::vector<std::string> Side::Export() {
  std::vector<std::string> descriptors;
  for (const Memory* memory : {&arena, &published}) {
    auto descriptor = endpoint->Export(memory->local);
    EXPECT_TRUE(descriptor.ok()) << descriptor.status().message();
    descriptors.push_back(descriptor.ok() ? *descriptor : "");
  }
  return descriptors;
}

void Side::Import(const std::vector<std::string>& descriptors) {
  size_t i = 0;
  for (Memory* memory : {&arena, &published}) {
    auto imported = endpoint->Import(descriptors.at(i++));
    ASSERT_TRUE(imported.ok()) << imported.status().message();
    memory->peers = *imported;
  }
}

WorkRequest Side::Write(uint64_t staging_offset, uint64_t arena_offset, uint32_t length,
                        uint64_t id) const {
  WorkRequest request;
  request.op = OpCode::kWrite;
  request.length = length;
  request.local = staging.local.address + staging_offset;
  request.local_key = staging.local.local_key;
  request.remote = arena.peers.address + arena_offset;
  request.remote_key = arena.peers.key;
  request.id = id;
  return request;
}

WorkRequest Side::WriteImm(uint64_t staging_offset, uint64_t arena_offset, uint32_t length,
                           uint32_t immediate, uint64_t id) const {
  WorkRequest request = Write(staging_offset, arena_offset, length, id);
  request.op = OpCode::kWriteImm;
  request.immediate = immediate;
  return request;
}

WorkRequest Side::Read(uint64_t staging_offset, uint64_t published_offset, uint32_t length,
                       uint64_t id) const {
  WorkRequest request = Write(staging_offset, 0, length, id);
  request.op = OpCode::kRead;
  request.remote = published.peers.address + published_offset;
  request.remote_key = published.peers.key;
  return request;
}

bool Side::PostAll(Span<const WorkRequest> chain, Deadline deadline) {
  Completion done[16];
  while (true) {
    chain = chain.subspan(endpoint->Post(chain));
    if (chain.empty()) return true;
    Poll();
    const size_t n = endpoint->PollSend(done);
    if (n != 0 && !done[n - 1].ok) return false;
    if (deadline.expired()) return false;
    if (n == 0) std::this_thread::yield();
  }
}

void Side::Poll() {
  if (transport->one_sided()) return;
  Completion buffer[16];
  const size_t n = transport->PollReceive(buffer);
  arrived.insert(arrived.end(), buffer, buffer + n);
}

std::vector<Completion> Side::TakeSends(size_t count, Deadline deadline, Side* peer) {
  return Take(count, deadline, [this, peer](Span<Completion> out) {
    Poll();
    if (peer != nullptr) peer->Poll();
    return endpoint->PollSend(out);
  });
}

std::vector<Completion> Side::TakeArrivals(size_t count, Deadline deadline) {
  auto taken = Take(count, deadline, [this](Span<Completion> out) {
    const size_t met = std::min(out.size(), arrived.size());
    std::copy_n(arrived.begin(), met, out.begin());
    arrived.erase(arrived.begin(), arrived.begin() + static_cast<std::ptrdiff_t>(met));
    return met != 0 ? met : transport->PollReceive(out);
  });
  Poll();  // as the peer may wait for this arrival to be perceived
  return taken;
}

void TransportTest::SetUp() {
  const TransportFactory* factory = FindTransport(GetParam().transport);
  ASSERT_NE(factory, nullptr);
  if (!GetParam().device.empty()) setenv("TF_RDMABATCH_DEVICE", GetParam().device.c_str(), 1);
  if (Status status = factory->probe(); !status.ok()) GTEST_SKIP() << status.message();
}

std::shared_ptr<Transport> NewTransport(const Subject& subject) {
  if (!subject.device.empty()) setenv("TF_RDMABATCH_DEVICE", subject.device.c_str(), 1);
  TransportOptions options;
  options.tls = subject.tls;
  auto transport = FindTransport(subject.transport)->create(options);
  if (!transport.ok()) {
    ADD_FAILURE() << transport.status().message();
    return nullptr;
  }
  return std::move(*transport);
}

EndpointOptions TransportTest::Options(uint64_t context) {
  EndpointOptions options;
  options.context = context;
  return options;
}

void TransportTest::Connect(Pair* pair, EndpointOptions a, EndpointOptions b) {
  for (Side* side : {&pair->a, &pair->b}) {
    if (side->transport == nullptr) side->transport = NewTransport();
    ASSERT_NE(side->transport, nullptr);
    if (side->arena.local.address == nullptr) side->Register();
  }
  a.counters = pair->a.counters.get();
  b.counters = pair->b.counters.get();
  auto acceptor = pair->b.transport->Listen(LocalIp(GetParam().transport));
  ASSERT_TRUE(acceptor.ok()) << acceptor.status().message();
  ASSERT_LE((*acceptor)->offer().size(), 256u);
  const Deadline deadline = Deadline::After(kPatience);
  Result<std::unique_ptr<Endpoint>> accepted = Status(StatusCode::kInternal, "not accepted");
  std::thread accepting([&] { accepted = (*acceptor)->Accept(b, deadline); });
  auto connected = pair->a.transport->Connect((*acceptor)->offer(), a, deadline);
  accepting.join();
  ASSERT_TRUE(connected.ok()) << connected.status().message();
  ASSERT_TRUE(accepted.ok()) << accepted.status().message();
  pair->a.endpoint = std::move(*connected);
  pair->b.endpoint = std::move(*accepted);
  pair->b.Import(pair->a.Export());
  pair->a.Import(pair->b.Export());
}

std::string LocalIp(const std::string& transport) {
  std::string ip = "127.0.0.1";
  ifaddrs* addresses = nullptr;
  if (transport != "verbs" || getifaddrs(&addresses) != 0) return ip;
  for (ifaddrs* entry = addresses; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if ((entry->ifa_flags & IFF_LOOPBACK) != 0 || (entry->ifa_flags & IFF_UP) == 0) continue;
    char text[INET_ADDRSTRLEN];
    ip = inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(entry->ifa_addr)->sin_addr, text,
                   sizeof(text));
    break;
  }
  freeifaddrs(addresses);
  return ip;
}

bool PeerProcess::Link::Put(const std::string& bytes) {
  return send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

bool PeerProcess::Link::Get(std::string* bytes) {
  pollfd entry{fd_.get(), POLLIN, 0};
  if (poll(&entry, 1, static_cast<int>(kPatience * 1000)) <= 0) return false;
  char buffer[4096];
  const ssize_t n = recv(fd_.get(), buffer, sizeof(buffer), 0);
  if (n <= 0) return false;
  bytes->assign(buffer, static_cast<size_t>(n));
  return true;
}

PeerProcess::PeerProcess(const std::function<int(Link&)>& body) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    ADD_FAILURE() << "socketpair: " << std::strerror(errno);
    return;
  }
  UniqueFd mine(ends[0]);
  UniqueFd theirs(ends[1]);
  pid_ = fork();
  if (pid_ == 0) {
    mine.reset();
    Link link(std::move(theirs));
    _exit(body(link));
  }
  link_ = std::make_unique<Link>(std::move(mine));
}

namespace {

// The environment of a process that plays a role.
constexpr char kRole[] = "RDMABATCH_TEST_ROLE";
constexpr char kRoleTransport[] = "RDMABATCH_TEST_ROLE_TRANSPORT";
constexpr char kRoleDevice[] = "RDMABATCH_TEST_ROLE_DEVICE";
constexpr char kRoleTls[] = "RDMABATCH_TEST_ROLE_TLS";
constexpr char kRoleLink[] = "RDMABATCH_TEST_ROLE_LINK";

std::map<std::string, PeerRole::Body>& Roles() {
  static auto* roles = new std::map<std::string, PeerRole::Body>;
  return *roles;
}

}  // namespace

PeerProcess::PeerProcess(const std::string& role, const Subject& subject)
    : PeerProcess([&](Link& link) {
        fcntl(link.fd(), F_SETFD, 0);
        setenv(kRole, role.c_str(), 1);
        setenv(kRoleTransport, subject.transport.c_str(), 1);
        setenv(kRoleDevice, subject.device.c_str(), 1);
        setenv(kRoleTls, subject.tls ? "1" : "", 1);
        setenv(kRoleLink, std::to_string(link.fd()).c_str(), 1);
        execl("/proc/self/exe", "peer", static_cast<char*>(nullptr));
        return 1;
      }) {}

PeerRole::PeerRole(const char* name, Body body) { Roles()[name] = body; }

bool PeerRole::Play(int* status) {
  const char* name = std::getenv(kRole);
  if (name == nullptr) return false;
  PeerProcess::Link link{UniqueFd(std::atoi(std::getenv(kRoleLink)))};
  const bool tls = *std::getenv(kRoleTls) != 0;
  *status = Roles().at(name)(&link, {std::getenv(kRoleTransport), std::getenv(kRoleDevice), tls});
  return true;
}

PeerProcess::~PeerProcess() {
  Kill();
  Wait();
}

void PeerProcess::Kill() {
  if (pid_ > 0) kill(pid_, SIGKILL);
}

bool PeerProcess::Stop() { return pid_ > 0 && kill(pid_, SIGSTOP) == 0; }

bool PeerProcess::Continue() { return pid_ > 0 && kill(pid_, SIGCONT) == 0; }

int PeerProcess::Wait() {
  if (pid_ <= 0) return -1;
  int status = 0;
  const bool waited = waitpid(pid_, &status, 0) == pid_;
  pid_ = -1;
  return waited && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

namespace {

bool Exchange(PeerProcess::Link* link, Side* side) {
  std::vector<std::string> theirs(2);
  for (const std::string& descriptor : side->Export()) {
    if (!link->Put(descriptor)) return false;
  }
  for (std::string& descriptor : theirs) {
    if (!link->Get(&descriptor)) return false;
  }
  side->Import(theirs);
  return !::testing::Test::HasFailure();
}

}  // namespace

bool AcceptOver(PeerProcess::Link* link, const std::string& ip, const EndpointOptions& options,
                Side* side) {
  auto acceptor = side->transport->Listen(ip);
  if (!acceptor.ok() || !link->Put((*acceptor)->offer())) return false;
  auto endpoint = (*acceptor)->Accept(options, Deadline::After(kPatience));
  if (!endpoint.ok()) return false;
  side->endpoint = std::move(*endpoint);
  return Exchange(link, side);
}

bool ConnectOver(PeerProcess::Link* link, const EndpointOptions& options, Side* side) {
  std::string offer;
  if (!link->Get(&offer)) return false;
  auto endpoint = side->transport->Connect(offer, options, Deadline::After(kPatience));
  if (!endpoint.ok()) return false;
  side->endpoint = std::move(*endpoint);
  return Exchange(link, side);
}

void Fill(uint8_t* data, size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    const uint64_t word = random();
    std::memcpy(data + i, &word, 8);
  }
  for (; i < bytes; ++i) data[i] = static_cast<uint8_t>(random());
}

bool Holds(const uint8_t* data, size_t bytes, uint64_t seed) {
  std::vector<uint8_t> expected(bytes);
  Fill(expected.data(), bytes, seed);
  return bytes == 0 || std::memcmp(expected.data(), data, bytes) == 0;
}

}  // namespace rdmabatch::testing
