// Values for Python that several classes return.
#ifndef TF_RDMABATCH_CC_PYTHON_CONVERT_H_
#define TF_RDMABATCH_CC_PYTHON_CONVERT_H_

#include <pybind11/pybind11.h>

#include "tf_rdmabatch/cc/base/counters.h"
#include "tf_rdmabatch/cc/python/message_queue.h"

namespace rdmabatch::python {

inline pybind11::dict ToDict(const CounterValues& values) {
  pybind11::dict counters;
#define RDMABATCH_X(name, meaning) counters[#name] = values.name;
  RDMABATCH_COUNTERS(RDMABATCH_X)
#undef RDMABATCH_X
  return counters;
}

// Copies the payload and gives its slot back.
inline pybind11::bytes TakePayload(QueuedMessage* message) {
  pybind11::bytes data(reinterpret_cast<const char*>(message->payload().data()),
                       message->payload().size());
  message->Release();
  return data;
}

}  // namespace rdmabatch::python

#endif  // TF_RDMABATCH_CC_PYTHON_CONVERT_H_
