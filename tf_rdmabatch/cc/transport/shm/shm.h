// The shared-memory transport: between processes of one host that share a network namespace. One
// copy a transfer, made by the side that posts; no copy and no CPU of the other side.
#ifndef TF_RDMABATCH_CC_TRANSPORT_SHM_SHM_H_
#define TF_RDMABATCH_CC_TRANSPORT_SHM_SHM_H_

#include "tf_rdmabatch/cc/transport/transport.h"

namespace rdmabatch {

extern const TransportFactory kShmTransport;

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_TRANSPORT_SHM_SHM_H_
