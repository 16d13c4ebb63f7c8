// One function for each topic of the module `_core`; module.cc calls them in this order.
#ifndef TF_RDMABATCH_CC_PYTHON_REGISTER_H_
#define TF_RDMABATCH_CC_PYTHON_REGISTER_H_

#include <pybind11/pybind11.h>

namespace rdmabatch::python {

void RegisterErrors(pybind11::module_& module);
void RegisterLogs(pybind11::module_& module);
void RegisterInfo(pybind11::module_& module);
void RegisterConnection(pybind11::module_& module);
void RegisterStore(pybind11::module_& module);
void RegisterEngine(pybind11::module_& module);
void RegisterTask(pybind11::module_& module);
void RegisterBench(pybind11::module_& module);

}  // namespace rdmabatch::python

#endif  // TF_RDMABATCH_CC_PYTHON_REGISTER_H_
