// What a program may set about an engine.
#ifndef TF_RDMABATCH_CC_ENGINE_OPTIONS_H_
#define TF_RDMABATCH_CC_ENGINE_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tf_rdmabatch/cc/base/export.h"
#include "tf_rdmabatch/cc/base/listen.h"
#include "tf_rdmabatch/cc/base/status.h"
#include "tf_rdmabatch/cc/engine/transport_rules.h"

namespace rdmabatch {

// How messages are confirmed. kBatch: chains and bitmap words. kEach: one post, one completion and
// one acknowledgement a message, the baseline that batching is measured against. The connecting
// side decides for both directions.
enum class Confirm : uint8_t { kBatch = 0, kEach = 1 };

// A program that all tasks of a job have in the same minor version.
struct SoftwareVersion {
  std::string name;
  std::string version;  // "2.21.0"
};

// This library's own.
RDMABATCH_EXPORT std::vector<SoftwareVersion> SoftwareOfThisLibrary();

// By what a peer recognises whether it shares memory with this process.
struct HostIdentity {
  std::string name;
  std::string boot_id;  // of the running kernel
  std::string network;  // namespace: containers have their own

  RDMABATCH_EXPORT static HostIdentity OfThisHost();
};

struct EngineOptions {
  std::string token;  // the job's secret; required
  std::string name;   // of this task, for messages and logs: "worker:0"
  // "auto", a transport's name, or rules by task (TransportRules); empty: as TF_RDMABATCH_TRANSPORT
  // says, else "auto"
  std::string transport;
  std::string ports;  // at which it listens, "20000-20100"; empty: as TF_RDMABATCH_PORTS says, else
                      // any free ones
  std::optional<bool> tls;  // encrypt what leaves this host; unset: as TF_RDMABATCH_TLS says, else
                            // no. All tasks of a job agree
  Confirm confirm = Confirm::kBatch;
  uint32_t window = 0;  // confirm each: messages unacknowledged at a time; 0 means all slots
  uint32_t slots = 64;  // this side receives into, per lane; a multiple of 64
  uint32_t slot_bytes = 64u << 10;  // a multiple of 64, headers included
  uint32_t queue_pairs = 1;         // lanes of a connection
  uint32_t max_batch = 16;          // slots in a chain
  uint32_t batch_bytes =
      64u << 10;                  // a chain with this much payload is posted, more to come or not
  uint32_t chains_in_flight = 2;  // chains unperceived before messages gather for the next
  double spin_us = -1;            // polling before sleeping; negative: 50; on one processor it
                                  // yields a few times instead, unless 0
  uint64_t max_message_bytes = uint64_t{1} << 30;
  uint32_t max_peers = 1024;
  double handshake_timeout_s = 10;
  bool huge_pages = false;
  uint32_t first_index = 0;  // where wrapping indices start (tests begin near the limit)
  HostIdentity host = HostIdentity::OfThisHost();                   // tests play another one
  std::vector<SoftwareVersion> software = SoftwareOfThisLibrary();  // callers add what they run in

  RDMABATCH_EXPORT Status Validate() const;
  // Of `ports`, or of the environment.
  Result<PortRange> Ports() const;
  // Of `tls`, or of the environment.
  Result<bool> Tls() const;
  // Of `transport`, or of the environment.
  Result<TransportRules> Rules(Span<const TransportFactory> known) const;
};

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_ENGINE_OPTIONS_H_
