// Hello: what each side of a connection says of itself first.
#ifndef TF_RDMABATCH_CC_ENGINE_HELLO_H_
#define TF_RDMABATCH_CC_ENGINE_HELLO_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/engine/options.h"
#include "tf_rdmabatch/cc/engine/wire.h"

namespace rdmabatch {

// A transport, and why it cannot be used; empty: it can.
struct TransportState {
  std::string name;
  std::string why_not;
};

struct Hello {
  // The layout of these three is the same in every version of this program.
  std::string name;  // of the task
  std::string host_name;
  std::vector<SoftwareVersion> software;
  // Memory can be shared where both agree; empty: not known.
  std::string boot_id;
  std::string network;
  uint32_t pid = 0;
  LaneGeometry geometry;  // of what the sender receives into
  uint32_t lanes = 1;     // the connecting side's wish counts
  Confirm confirm = Confirm::kBatch;
  std::vector<TransportState> transports;

  std::string Encode() const;
  // A peer's bytes, of which nothing is trusted. kFailedPrecondition: it has other software than
  // `mine`; the message names both hosts and versions. kDataLoss: the bytes do not parse, or hold a
  // value out of range.
  static Result<Hello> Decode(const std::string& bytes, const Hello& mine);
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_HELLO_H_
