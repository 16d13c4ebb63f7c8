// The module tf_rdmabatch._core: what tf_rdmabatch.engine is made of. Not for users.
#include <pybind11/pybind11.h>

#include "tf_rdmabatch/cc/python/register.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "The engine's classes as tf_rdmabatch.engine uses them.";
  rdmabatch::python::RegisterErrors(module);
  rdmabatch::python::RegisterLogs(module);
  rdmabatch::python::RegisterInfo(module);
  rdmabatch::python::RegisterConnection(module);
  rdmabatch::python::RegisterStore(module);
  rdmabatch::python::RegisterEngine(module);
  rdmabatch::python::RegisterTask(module);
  rdmabatch::python::RegisterBench(module);
}
