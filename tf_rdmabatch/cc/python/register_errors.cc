#include "tf_rdmabatch/cc/python/register.h"
#include "tf_rdmabatch/cc/python/status_error.h"

namespace py = pybind11;

namespace rdmabatch::python {

void RegisterErrors(py::module_& module) {
  (void)module;
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const StatusError& error) {
      const py::object exception =
          py::module_::import("tf_rdmabatch.errors")
              .attr("from_code")(static_cast<int>(error.status().code()), error.what());
      PyErr_SetObject(py::type::handle_of(exception).ptr(), exception.ptr());
    }
  });
}

}  // namespace rdmabatch::python
