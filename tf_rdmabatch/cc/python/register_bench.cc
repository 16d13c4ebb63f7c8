#include <pybind11/stl.h>

#include <string>
#include <type_traits>
#include <vector>

#include "tf_rdmabatch/cc/bench/task.h"
#include "tf_rdmabatch/cc/python/register.h"
#include "tf_rdmabatch/cc/python/status_error.h"

namespace py = pybind11;

namespace rdmabatch::python {
namespace {

using bench::Task;
using bench::TaskOptions;

// Takes out of `fields` what the options have, so that what is left is what nobody knows.
TaskOptions OptionsFrom(const py::dict& fields) {
  TaskOptions options;
  const auto take = [&](const char* name, auto* value) {
    if (!fields.contains(name)) return;
    *value = py::cast<std::remove_pointer_t<decltype(value)>>(fields[name]);
    fields.attr("pop")(name);
  };
  std::string confirm = "batch";
  take("role", &options.role);
  take("sends", &options.sends);
  take("bytes", &options.bytes);
  take("parameters", &options.parameters);
  take("servers", &options.servers);
  take("index", &options.index);
  take("contributors", &options.contributors);
  take("pushes", &options.pushes);
  take("pulls", &options.pulls);
  take("token", &options.engine.token);
  take("name", &options.engine.name);
  take("transport", &options.engine.transport);
  take("confirm", &confirm);
  take("window", &options.engine.window);
  take("slots", &options.engine.slots);
  take("slot_bytes", &options.engine.slot_bytes);
  take("queue_pairs", &options.engine.queue_pairs);
  take("max_batch", &options.engine.max_batch);
  take("batch_bytes", &options.engine.batch_bytes);
  take("chains_in_flight", &options.engine.chains_in_flight);
  take("spin_us", &options.engine.spin_us);
  if (confirm != "batch" && confirm != "each") {
    Check({StatusCode::kInvalidArgument, "no such way to confirm: " + confirm});
  }
  options.engine.confirm = confirm == "each" ? Confirm::kEach : Confirm::kBatch;
  for (const auto& field : fields) {
    Check({StatusCode::kInvalidArgument, "no such option: " + std::string(py::str(field.first))});
  }
  return options;
}

py::dict Run(Task& task, const std::string& phase, int64_t start_ns, int64_t end_ns,
             int64_t stop_ns) {
  bench::Measurement measurement;
  {
    py::gil_scoped_release unlocked;
    Check(task.Run(phase == "latency" ? bench::Phase::kLatency : bench::Phase::kLoad,
                   {start_ns, end_ns, stop_ns}, &measurement));
  }
  py::dict result;
  result["seconds"] = measurement.seconds;
  result["cpu_s"] = measurement.cpu_s;
  result["messages"] = measurement.messages;
  py::dict counters;
#define RDMABATCH_X(name, meaning) counters[#name] = measurement.counters.name;
  RDMABATCH_COUNTERS(RDMABATCH_X)
#undef RDMABATCH_X
  result["counters"] = counters;
  py::list peers;
  for (const bench::PeerMeasurement& peer : measurement.peers) {
    py::dict one;
    one["messages"] = peer.messages;
    one["latencies"] = peer.latencies;
    peers.append(one);
  }
  result["peers"] = peers;
  result["memory_bytes_per_peer"] = task.memory_bytes_per_peer();
  return result;
}

}  // namespace

void RegisterBench(py::module_& module) {
  py::class_<Task>(module, "BenchTask")
      .def(py::init([](const py::kwargs& fields) {
        const TaskOptions options = OptionsFrom(fields);
        py::gil_scoped_release unlocked;
        return Take(Task::Create(options));
      }))
      .def(
          "listen",
          [](Task& task, const std::string& address) {
            py::gil_scoped_release unlocked;
            return Take(task.Listen(address));
          },
          py::arg("address"))
      .def(
          "connect",
          [](Task& task, const std::vector<std::string>& addresses, uint32_t connections,
             double timeout) {
            py::gil_scoped_release unlocked;
            Check(task.Connect(addresses, connections, Deadline::After(timeout)));
          },
          py::arg("addresses"), py::arg("connections"), py::arg("timeout"))
      .def(
          "prepare",
          [](Task& task, uint32_t peers, double timeout) {
            py::gil_scoped_release unlocked;
            const Deadline deadline = Deadline::After(timeout);
            Check(task.AwaitPeers(peers, deadline));
            Check(task.Prepare(deadline));
          },
          py::arg("peers"), py::arg("timeout"))
      .def("run", &Run, py::arg("phase"), py::arg("start_ns"), py::arg("end_ns"),
           py::arg("stop_ns"));
}

}  // namespace rdmabatch::python
