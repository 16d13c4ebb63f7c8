#include <string>

#include "tf_rdmabatch/cc/base/counters.h"
#include "tf_rdmabatch/cc/engine/round_times.h"
#include "tf_rdmabatch/cc/python/register.h"
#include "tf_rdmabatch/cc/transport/registry.h"

namespace py = pybind11;

namespace rdmabatch::python {

void RegisterInfo(py::module_& module) {
  module.def("transports", [] {
    py::list transports;
    for (const TransportFactory& factory : Transports()) {
      Status status;
      {
        py::gil_scoped_release unlocked;
        status = factory.probe();
      }
      transports.append(py::make_tuple(factory.name, status.ok(), status.message()));
    }
    return transports;
  });
  py::dict counters;
#define RDMABATCH_X(name, meaning) counters[#name] = meaning;
  RDMABATCH_COUNTERS(RDMABATCH_X)
#undef RDMABATCH_X
  module.attr("COUNTERS") = counters;
  py::dict round_fields;
#define RDMABATCH_X(name, meaning) round_fields[#name] = meaning;
  RDMABATCH_ROUND_FIELDS(RDMABATCH_X)
#undef RDMABATCH_X
  module.attr("ROUND_FIELDS") = round_fields;
}

}  // namespace rdmabatch::python
