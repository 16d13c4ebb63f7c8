#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <vector>

#include "tf_rdmabatch/cc/python/convert.h"
#include "tf_rdmabatch/cc/python/native_engine.h"
#include "tf_rdmabatch/cc/python/register.h"
#include "tf_rdmabatch/cc/python/status_error.h"
#include "tf_rdmabatch/cc/python/wait.h"

namespace py = pybind11;

namespace rdmabatch::python {
namespace {

using EnginePtr = std::shared_ptr<NativeEngine>;

NativeConnection Connect(const EnginePtr& engine, const std::string& address, double timeout) {
  const Deadline deadline = Deadline::After(timeout);
  // Raw: closing the engine joins whoever uses it.
  Engine* native = &engine->engine();
  auto connection = engine->left_behind().Run<std::shared_ptr<Connection>>(
      engine->waits(), [native, address, deadline] { return native->Connect(address, deadline); },
      [](std::shared_ptr<Connection>& late) { late->Close(); });
  return Wrap(engine, std::move(connection));
}

py::tuple Receive(const EnginePtr& engine, double timeout) {
  QueuedMessage message;
  MessageQueue& queue = engine->queue();
  WaitInSlices(engine->waits(), timeout,
               [&](Deadline deadline) { return queue.Take(nullptr, &message, deadline); });
  const uint64_t tag = message.tag();
  py::bytes data = TakePayload(&message);
  return py::make_tuple(Wrap(engine, message.connection()), tag, std::move(data));
}

std::vector<NativeConnection> Connections(const EnginePtr& engine) {
  std::vector<NativeConnection> connections;
  for (auto& connection : engine->engine().connections()) {
    connections.push_back(Wrap(engine, std::move(connection)));
  }
  return connections;
}

}  // namespace

void RegisterEngine(py::module_& module) {
  py::enum_<Access>(module, "Access")
      .value("LOCAL", Access::kLocal)
      .value("READ", Access::kRemoteRead)
      .value("WRITE", Access::kRemoteReadWrite);
  py::enum_<Confirm>(module, "Confirm")
      .value("BATCH", Confirm::kBatch)
      .value("EACH", Confirm::kEach);

  module.def("check_transport",
             [](const std::string& text) { (void)Take(TransportRules::Parse(text)); });
  module.def("check_ports", [](const std::string& text) { (void)Take(PortRange::Parse(text)); });

  py::class_<EngineOptions>(module, "EngineOptions")
      .def(py::init<>())
      .def_readwrite("token", &EngineOptions::token)
      .def_readwrite("name", &EngineOptions::name)
      .def_readwrite("transport", &EngineOptions::transport)
      .def_readwrite("ports", &EngineOptions::ports)
      .def_readwrite("tls", &EngineOptions::tls)
      .def_readwrite("confirm", &EngineOptions::confirm)
      .def_readwrite("window", &EngineOptions::window)
      .def_readwrite("slots", &EngineOptions::slots)
      .def_readwrite("slot_bytes", &EngineOptions::slot_bytes)
      .def_readwrite("queue_pairs", &EngineOptions::queue_pairs)
      .def_readwrite("max_batch", &EngineOptions::max_batch)
      .def_readwrite("spin_us", &EngineOptions::spin_us)
      .def_readwrite("max_message_bytes", &EngineOptions::max_message_bytes)
      .def_readwrite("max_peers", &EngineOptions::max_peers)
      .def_readwrite("handshake_timeout_s", &EngineOptions::handshake_timeout_s)
      .def_readwrite("huge_pages", &EngineOptions::huge_pages);

  py::class_<NativeEngine, EnginePtr>(module, "Engine")
      .def(py::init(&NativeEngine::Create), py::call_guard<py::gil_scoped_release>())
      .def("listen",
           [](const EnginePtr& engine, const std::string& address) {
             py::gil_scoped_release unlocked;
             return Take(engine->engine().Listen(address));
           })
      .def("connect", &Connect)
      .def("receive", &Receive)
      .def("allocate",
           [](const EnginePtr& engine, uint64_t bytes, Access access) {
             py::gil_scoped_release unlocked;
             return Take(engine->engine().Allocate(bytes, access));
           })
      .def("connections", &Connections)
      .def("counters", [](const EnginePtr& e) { return ToDict(e->counters()); })
      .def("reset_counters", &NativeEngine::ResetCounters)
      .def("close", &NativeEngine::Close, py::call_guard<py::gil_scoped_release>());
}

}  // namespace rdmabatch::python
