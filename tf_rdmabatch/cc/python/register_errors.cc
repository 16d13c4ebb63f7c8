#include "tf_rdmabatch/cc/python/register.h"
#include "tf_rdmabatch/cc/python/status_error.h"

namespace py = pybind11;

namespace rdmabatch::python {
namespace {

// The class of each status code but kOk. Never destroyed: threads may raise while the process ends.
PyObject* classes = nullptr;

}  // namespace

void RegisterErrors(py::module_&) {
  classes = py::tuple(py::module_::import("tf_rdmabatch.errors").attr("BY_CODE")).release().ptr();
  py::register_local_exception_translator(
      [](std::exception_ptr pointer) {  // NOLINT(performance-unnecessary-value-param)
        try {
          if (pointer) std::rethrow_exception(pointer);
        } catch (const StatusError& error) {
          // No Python code runs here: it could lose the GIL, for ever when the interpreter ends.
          const auto index = static_cast<Py_ssize_t>(error.status().code()) - 1;
          PyErr_SetString(PyTuple_GET_ITEM(classes, index), error.what());
        }
      });
}

}  // namespace rdmabatch::python
