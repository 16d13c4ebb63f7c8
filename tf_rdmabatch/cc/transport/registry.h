// The transports of this build, in the order in which `auto` prefers them.
#ifndef TF_RDMABATCH_CC_TRANSPORT_REGISTRY_H_
#define TF_RDMABATCH_CC_TRANSPORT_REGISTRY_H_

#include <string>

#include "tf_rdmabatch/cc/base/export.h"
#include "tf_rdmabatch/cc/base/span.h"
#include "tf_rdmabatch/cc/transport/transport.h"

namespace rdmabatch {

RDMABATCH_EXPORT Span<const TransportFactory> Transports();

// Null when no transport has that name.
RDMABATCH_EXPORT const TransportFactory* FindTransport(const std::string& name);

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_TRANSPORT_REGISTRY_H_
