#include "tf_rdmabatch/cc/transport/verbs/wire.h"

#include <algorithm>

namespace rdmabatch {
namespace verbs {
namespace {

constexpr char kVersion = 1;

template <typename T>
void Put(std::string* out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out->push_back(static_cast<char>((static_cast<uint64_t>(value) >> (8 * i)) & 0xff));
  }
}

// The caller has checked that the bytes are there.
template <typename T>
T Get(std::string_view bytes, size_t offset) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= uint64_t{static_cast<uint8_t>(bytes[offset + i])} << (8 * i);
  }
  return static_cast<T>(value);
}

template <size_t N>
void PutBytes(std::string* out, const std::array<uint8_t, N>& bytes) {
  out->append(reinterpret_cast<const char*>(bytes.data()), N);
}

template <size_t N>
std::array<uint8_t, N> GetBytes(std::string_view bytes, size_t offset) {
  std::array<uint8_t, N> out;
  std::copy_n(bytes.data() + offset, N, reinterpret_cast<char*>(out.data()));
  return out;
}

Status Refuse(const char* what) {
  return {StatusCode::kDataLoss, std::string("a verbs peer sent a bad ") + what};
}

bool HasHeader(std::string_view bytes, char kind, size_t size) {
  return bytes.size() >= size && bytes[0] == 'R' && bytes[1] == kind && bytes[2] == kVersion;
}

}  // namespace

std::string Offer::Encode() const {
  std::string out{'R', 'V', kVersion, static_cast<char>(fabric), static_cast<char>(family), 0};
  Put(&out, port);
  PutBytes(&out, address);
  PutBytes(&out, cookie);
  return out;
}

Result<Offer> Offer::Parse(std::string_view bytes) {
  if (!HasHeader(bytes, 'V', kBytes) || bytes.size() != kBytes) return Refuse("offer");
  Offer offer;
  const auto fabric = static_cast<uint8_t>(bytes[3]);
  if (fabric != static_cast<uint8_t>(Fabric::kInfiniBand) &&
      fabric != static_cast<uint8_t>(Fabric::kIwarp)) {
    return Refuse("offer (unknown fabric)");
  }
  offer.fabric = static_cast<Fabric>(fabric);
  offer.family = static_cast<uint8_t>(bytes[4]);
  offer.port = Get<uint16_t>(bytes, 6);
  offer.address = GetBytes<16>(bytes, 8);
  offer.cookie = GetBytes<16>(bytes, 24);
  if ((offer.family != 4 && offer.family != 6) || bytes[5] != 0 || offer.port == 0) {
    return Refuse("offer (address)");
  }
  const auto is_zero = [](uint8_t byte) { return byte == 0; };
  if (offer.family == 4 && !std::all_of(&offer.address[4], offer.address.end(), is_zero)) {
    return Refuse("offer (address)");
  }
  return offer;
}

std::string Descriptor::Encode() const {
  std::string out{'R', 'M', kVersion, 0};
  Put(&out, key);
  Put(&out, address);
  Put(&out, bytes);
  return out;
}

Result<Descriptor> Descriptor::Parse(std::string_view bytes) {
  if (!HasHeader(bytes, 'M', kBytes) || bytes.size() != kBytes || bytes[3] != 0) {
    return Refuse("memory descriptor");
  }
  Descriptor descriptor;
  descriptor.key = Get<uint32_t>(bytes, 4);
  descriptor.address = Get<uint64_t>(bytes, 8);
  descriptor.bytes = Get<uint64_t>(bytes, 16);
  if (descriptor.bytes == 0 || descriptor.address + descriptor.bytes < descriptor.address) {
    return Refuse("memory descriptor (range)");
  }
  return descriptor;
}

std::string ConnectRequest::Encode() const {
  std::string out{'R', 'C', kVersion, 0};
  PutBytes(&out, cookie);
  return out;
}

Result<ConnectRequest> ConnectRequest::Parse(std::string_view bytes) {
  if (!HasHeader(bytes, 'C', kBytes) || bytes[3] != 0) return Refuse("connection request");
  ConnectRequest request;
  request.cookie = GetBytes<16>(bytes, 4);
  return request;
}

}  // namespace verbs
}  // namespace rdmabatch
