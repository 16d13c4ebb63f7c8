// libibverbs and librdmacm, loaded at run time: one build runs on machines with and without them.
//
// What the headers define inline (ibv_post_send, ibv_poll_cq, ...) calls through the device context
// and is used as it is. Everything that the libraries export is called through this table.
#ifndef TF_RDMABATCH_CC_TRANSPORT_VERBS_LOADER_H_
#define TF_RDMABATCH_CC_TRANSPORT_VERBS_LOADER_H_

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "tf_rdmabatch/cc/base/status.h"

namespace rdmabatch {
namespace verbs {

#define RDMABATCH_IBVERBS_SYMBOLS(X) \
  X(ack_cq_events)                   \
  X(alloc_pd)                        \
  X(create_comp_channel)             \
  X(create_cq)                       \
  X(dealloc_pd)                      \
  X(dereg_mr)                        \
  X(destroy_comp_channel)            \
  X(destroy_cq)                      \
  X(free_device_list)                \
  X(get_cq_event)                    \
  X(get_device_list)                 \
  X(get_device_name)                 \
  X(modify_qp)                       \
  X(query_device)                    \
  X(query_port)                      \
  X(reg_mr)                          \
  X(wc_status_str)

#define RDMABATCH_RDMACM_SYMBOLS(X) \
  X(accept)                         \
  X(ack_cm_event)                   \
  X(bind_addr)                      \
  X(connect)                        \
  X(create_event_channel)           \
  X(create_id)                      \
  X(create_qp)                      \
  X(destroy_event_channel)          \
  X(destroy_id)                     \
  X(destroy_qp)                     \
  X(disconnect)                     \
  X(event_str)                      \
  X(free_devices)                   \
  X(get_cm_event)                   \
  X(get_devices)                    \
  X(listen)                         \
  X(migrate_id)                     \
  X(reject)                         \
  X(resolve_addr)                   \
  X(resolve_route)                  \
  X(set_option)

// Members are named like the functions without their prefix: ibv_reg_mr is ibv.reg_mr, rdma_connect
// is cm.connect (some of the prefixed names are macros).
struct Library {
  struct {
#define RDMABATCH_X(name) decltype(&::ibv_##name) name = nullptr;
    RDMABATCH_IBVERBS_SYMBOLS(RDMABATCH_X)
#undef RDMABATCH_X
  } ibv;
  struct {
#define RDMABATCH_X(name) decltype(&::rdma_##name) name = nullptr;
    RDMABATCH_RDMACM_SYMBOLS(RDMABATCH_X)
#undef RDMABATCH_X
  } cm;
};

// Loads both libraries at the first call; later calls return the same answer. kUnavailable says
// what is missing and how to get it. Thread-safe. The libraries stay loaded.
Status LoadLibrary();

// Only after LoadLibrary() returned OK.
const Library& Lib();

}  // namespace verbs
}  // namespace rdmabatch

#endif  // TF_RDMABATCH_CC_TRANSPORT_VERBS_LOADER_H_
