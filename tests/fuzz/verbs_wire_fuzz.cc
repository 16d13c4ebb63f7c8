// Offers, memory descriptors and connection requests of the verbs transport. What is accepted must
// be exactly what this program would write for the same content (a connection request: its start).
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tf_rdmabatch/cc/transport/verbs/address.h"
#include "tf_rdmabatch/cc/transport/verbs/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rdmabatch::verbs;  // NOLINT(google-build-using-namespace)
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (auto offer = Offer::Parse(input); offer.ok()) {
    if (offer->Encode() != input) __builtin_trap();
    Offer again = *offer;
    SocketAddress::FromOffer(*offer).FillOffer(&again);
    if (again.Encode() != input) __builtin_trap();
  }
  if (auto descriptor = Descriptor::Parse(input); descriptor.ok()) {
    if (descriptor->Encode() != input) __builtin_trap();
  }
  if (auto request = ConnectRequest::Parse(input); request.ok()) {
    if (request->Encode() != input.substr(0, ConnectRequest::kBytes)) __builtin_trap();
  }
  return 0;
}
