// Fragments of large messages, as a peer sends them: lengths, then bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tf_rdmabatch/cc/engine/reassembly.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  rdmabatch::Reassembly reassembly;
  reassembly.SetLimits(4096, 1024, 8);
  while (size > 0) {
    const size_t length = std::min<size_t>(data[0], size - 1);
    rdmabatch::Reassembly::Whole whole;
    if (!reassembly.Take({data + 1, length}, &whole)) return 0;
    if (whole.bytes != nullptr) {
      volatile uint8_t last = whole.bytes.get()[whole.size - 1];
      (void)last;
    }
    data += 1 + length;
    size -= 1 + length;
  }
  return 0;
}
