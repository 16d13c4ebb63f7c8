// Whatever a peer may write into a lane's memory, and whatever it may announce. The first byte
// chooses the mode; the rest are steps: writes to slots and words, immediates, and what the
// attacked side does meanwhile.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/cc/engine/fake_endpoint.h"
#include "tf_rdmabatch/cc/engine/lane.h"

namespace {

using namespace rdmabatch;  // NOLINT(google-build-using-namespace)
using rdmabatch::testing::FakeEndpoint;
using rdmabatch::testing::FakeTransport;

void Expect(bool condition) {
  if (!condition) __builtin_trap();
}

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  uint8_t Byte() { return Take<uint8_t>(); }
  template <typename T>
  T Take() {
    T value{};
    Bytes(reinterpret_cast<uint8_t*>(&value), sizeof(value));
    return value;
  }
  size_t Bytes(uint8_t* to, size_t size) {
    size = size < size_ ? size : size_;
    std::memcpy(to, data_, size);
    data_ += size;
    size_ -= size;
    return size;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

// Checks that every message lies in its slot, and keeps some.
struct Host : LaneHost {
  Disposition OnLaneMessage(const MessageHeader& header, Span<const uint8_t> payload,
                            SlotHold hold) override {
    Expect(hold.slot < geometry.slots && header.bytes == payload.size());
    const uint8_t* slot = slots + uint64_t{hold.slot} * geometry.slot_bytes;
    Expect(payload.data() >= slot + sizeof(SlotHeader) + sizeof(MessageHeader));
    Expect(payload.data() + payload.size() <= slot + geometry.slot_bytes);
    if (header.tag % 16 == 15) return Disposition::kViolate;
    if (header.tag % 4 != 3) return Disposition::kDone;
    holds.push_back(hold);
    return Disposition::kHold;
  }
  void OnLaneFailed(const Status& status) override {
    Expect(!status.ok() && !status.message().empty());
    ++failures;
  }

  LaneGeometry geometry;
  const uint8_t* slots = nullptr;
  std::vector<SlotHold> holds;
  int failures = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  Input input(data, size);
  const uint8_t mode = input.Byte();
  EngineOptions options;
  options.confirm = (mode & 1) != 0 ? Confirm::kEach : Confirm::kBatch;
  options.window = (mode & 2) != 0 ? 1 : 0;
  options.slots = (mode & 4) != 0 ? 128 : 64;
  options.slot_bytes = 256;
  options.max_batch = 4;

  FakeTransport transport;
  Host host;
  host.geometry = {options.slots, options.slot_bytes};
  auto lane =
      Lane::Create({0, host.geometry, host.geometry, options.confirm, &host, &transport}, options);
  Expect(lane.ok());
  // The attacker is an endpoint without a lane.
  FakeTransport attackers;
  auto segment = Segment::Create(LayoutOf(host.geometry, host.geometry).bytes, false, false);
  Expect(segment.ok());
  Counters counters;
  EndpointOptions attacker_options;
  attacker_options.counters = &counters;
  FakeEndpoint attacker(&attackers, attacker_options);
  auto endpoint = std::make_unique<FakeEndpoint>(&transport, (*lane)->MakeEndpointOptions());
  FakeEndpoint* fake = endpoint.get();
  FakeEndpoint::Link(fake, &attacker);
  (*lane)->SetEndpoint(std::move(endpoint));
  auto theirs = attackers.RegisterMemory(*segment, Access::kRemoteWrite);
  auto descriptor = attacker.Export(*theirs);
  Expect((*lane)->ExportSegment().ok() && (*lane)->ImportSegment(*descriptor).ok());
  (*lane)->Activate();

  uint8_t* const memory = fake->exported[0].address;
  const LaneLayout layout = LayoutOf(host.geometry, host.geometry);
  host.slots = memory + layout.slots;
  const uint32_t words = host.geometry.words();
  while (!input.empty()) {
    switch (input.Byte() % 8) {
      case 0: {  // into a slot
        const uint32_t slot = input.Byte() % options.slots;
        const uint32_t at = input.Byte();
        input.Bytes(memory + layout.slots + slot * 256 + at, 256 - at);
        break;
      }
      case 1: {  // a plausible slot
        const uint32_t slot = input.Byte() % options.slots;
        SlotHeader header{input.Take<uint16_t>(), input.Byte(), 0, input.Byte()};
        MessageHeader message{input.Byte(), 16, 0, 0, input.Byte()};
        std::memcpy(memory + layout.slots + slot * 256, &header, sizeof(header));
        std::memcpy(memory + layout.slots + slot * 256 + sizeof(header), &message, sizeof(message));
        break;
      }
      case 2:
        input.Bytes(memory + layout.arrived + input.Byte() % words * 8, 8);
        break;
      case 3:
        input.Bytes(memory + layout.freed + input.Byte() % words * 8, 8);
        break;
      case 4:
        if ((*lane)->OnImmediate(input.Take<uint32_t>())) (*lane)->HandleArrivals();
        break;
      case 5: {
        uint8_t bytes[224] = {};
        const size_t length = input.Byte() % (sizeof(bytes) + 1);
        const bool more = input.Byte() % 2 == 0;
        const SendOutcome sent =
            (*lane)->TrySend({MessageKind::kUser, 0, {}, {bytes, length}}, 0, more);
        Expect(sent != SendOutcome::kFailed || (*lane)->failed());
        if (sent == SendOutcome::kNoSlot) (*lane)->WantSlots();
        break;
      }
      case 6:
        if (!host.holds.empty()) {
          Expect((*lane)->Release(host.holds.back().slot) || (*lane)->failed());
          host.holds.pop_back();
        }
        break;
      default:
        if ((*lane)->wants_service()) (*lane)->Service();
    }
  }
  Expect(!fake->out_of_reach);
  Expect(host.failures == ((*lane)->failed() ? 1 : 0));
  return 0;
}
