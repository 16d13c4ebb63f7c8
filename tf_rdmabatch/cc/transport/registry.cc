#include "tf_rdmabatch/cc/transport/registry.h"

#include "tf_rdmabatch/cc/transport/shm/shm.h"
#include "tf_rdmabatch/cc/transport/tcp/tcp.h"
#if RDMABATCH_HAVE_VERBS
#include "tf_rdmabatch/cc/transport/verbs/verbs.h"
#endif

namespace rdmabatch {
namespace {

#if !RDMABATCH_HAVE_VERBS
Status NotBuilt() {
  return {StatusCode::kUnimplemented,
          "this build was made without the libibverbs headers: install libibverbs-dev and "
          "librdmacm-dev (Debian) or rdma-core-devel (Fedora), then build again"};
}

const TransportFactory kVerbsTransport = {
    "verbs", NotBuilt,
    [](const TransportOptions&) -> Result<std::unique_ptr<Transport>> { return NotBuilt(); }};
#endif

}  // namespace

Span<const TransportFactory> Transports() {
  static const TransportFactory transports[] = {kShmTransport, kVerbsTransport, kTcpTransport};
  return transports;
}

const TransportFactory* FindTransport(const std::string& name) {
  for (const TransportFactory& transport : Transports()) {
    if (name == transport.name) return &transport;
  }
  return nullptr;
}

}  // namespace rdmabatch
