// The process's task, which the ops of TensorFlow start.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <string>

#include "tf_rdmabatch/cc/engine/task.h"
#include "tf_rdmabatch/cc/python/register.h"

namespace py = pybind11;

namespace rdmabatch::python {

void RegisterTask(py::module_& module) {
  // Name and address; nothing where none was started.
  module.def("current_task", []() -> std::optional<std::pair<std::string, std::string>> {
    auto task = Task::Current();
    if (task == nullptr) return std::nullopt;
    return std::pair(task->name(), task->address());
  });
  module.def("stop_task", &Task::StopCurrent, py::call_guard<py::gil_scoped_release>());
}

}  // namespace rdmabatch::python
