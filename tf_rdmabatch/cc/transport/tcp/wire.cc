#include "tf_rdmabatch/cc/transport/tcp/wire.h"

#include <algorithm>

namespace rdmabatch::tcp {

bool Offer::Valid() const {
  if ((family != 4 && family != 6) || port == 0 || port > 65535 || tls > 1) return false;
  return family == 6 || std::all_of(&address[4], address.data() + address.size(),
                                    [](uint8_t b) { return b == 0; });
}

bool Plausible(const Frame& frame) {
  switch (frame.type) {
    case FrameType::kWrite:
    case FrameType::kRead:
      return frame.length != 0 && frame.immediate == 0;
    case FrameType::kWriteImm:
      return true;
    case FrameType::kReply:
      return frame.length != 0 && frame.immediate == 0 && frame.region == 0 && frame.offset == 0;
    case FrameType::kAck:
      return frame.length == 0 && frame.region == 0 && frame.offset == 0;
  }
  return false;
}

}  // namespace rdmabatch::tcp
