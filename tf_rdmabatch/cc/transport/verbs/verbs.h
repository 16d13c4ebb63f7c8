// The verbs transport: RDMA devices through libibverbs and librdmacm (RC queue pairs).
//
// One transport uses one device: the first with an active port, or the one that
// TF_RDMABATCH_DEVICE in the environment names (`mlx5_0`, `rxe0`, `siw0`). InfiniBand, RoCE and
// iWARP devices work, but both ends must be iWARP or neither.
#ifndef TF_RDMABATCH_CC_TRANSPORT_VERBS_VERBS_H_
#define TF_RDMABATCH_CC_TRANSPORT_VERBS_VERBS_H_

#include "tf_rdmabatch/cc/transport/transport.h"

namespace rdmabatch {

extern const TransportFactory kVerbsTransport;

}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_TRANSPORT_VERBS_VERBS_H_
