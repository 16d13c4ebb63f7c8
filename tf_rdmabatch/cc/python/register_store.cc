#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tf_rdmabatch/cc/python/buffers.h"
#include "tf_rdmabatch/cc/python/native_engine.h"
#include "tf_rdmabatch/cc/python/register.h"
#include "tf_rdmabatch/cc/python/status_error.h"
#include "tf_rdmabatch/cc/python/wait.h"

namespace py = pybind11;

namespace rdmabatch::python {
namespace {

using EnginePtr = std::shared_ptr<NativeEngine>;

// A parameter that this engine serves, and its published memory as a buffer.
struct Served {
  EnginePtr engine;
  std::string name;
  uint8_t* published = nullptr;
  uint64_t bytes = 0;

  ParameterInfo Info() const { return Take(engine->server().Info(name)); }
};

// A parameter of a peer.
struct Opened {
  NativeConnection server;
  std::shared_ptr<ParameterClient::Parameter> parameter;

  const ParameterInfo& Info() const { return ParameterClient::Info(*parameter); }
};

Served Serve(const EnginePtr& engine, ParameterSpec spec) {
  py::gil_scoped_release unlocked;
  Check(engine->server().Serve(spec));
  uint8_t* published = Take(engine->server().published(spec.name));
  const uint64_t bytes = Take(engine->server().Info(spec.name)).bytes;
  return {engine, std::move(spec.name), published, bytes};
}

uint64_t Collect(const Served& served, uint64_t step, const std::optional<py::object>& out,
                 double timeout) {
  std::optional<ContiguousBytes> sum;
  if (out) sum.emplace(*out, /*writable=*/true);
  ParameterServer& server = served.engine->server();
  uint64_t contributions = 0;
  WaitInSlices(served.engine->waits(), timeout, [&](Deadline deadline) {
    return server.Collect(served.name, step, sum ? sum->data() : nullptr,
                          sum ? sum->size() : served.bytes, deadline, &contributions);
  });
  return contributions;
}

void Publish(const Served& served, uint64_t version, const std::optional<py::object>& value) {
  std::optional<ContiguousBytes> source;
  if (value) source.emplace(*value);
  py::gil_scoped_release unlocked;
  Check(served.engine->server().Publish(served.name, version,
                                        source ? source->data() : served.published,
                                        source ? source->size() : served.bytes));
}

Opened Open(const NativeConnection& server, const std::string& name, double timeout) {
  using Parameter = std::shared_ptr<ParameterClient::Parameter>;
  const Deadline deadline = Deadline::After(timeout);
  // Raw: closing the engine joins whoever uses it.
  ParameterClient* client = &server.engine->client();
  auto parameter = server.engine->left_behind().Run<Parameter>(
      server.engine->waits(),
      [client, connection = server.connection, name, deadline] {
        return client->Open(connection, name, deadline);
      },
      [](Parameter&) {});
  return {server, std::move(parameter)};
}

void Push(const Opened& opened, uint64_t step, uint32_t contributor, const py::object& value,
          double timeout) {
  const ContiguousBytes source(value);
  ParameterClient& client = opened.server.engine->client();
  WaitInSlices(opened.server.engine->waits(), timeout, [&](Deadline deadline) {
    return client.Push(*opened.parameter, step, contributor, source.data(), source.size(),
                       deadline);
  });
}

void WaitVersion(const Opened& opened, uint64_t version, double timeout) {
  ParameterClient& client = opened.server.engine->client();
  WaitInSlices(opened.server.engine->waits(), timeout, [&](Deadline deadline) {
    return client.WaitVersion(*opened.parameter, version, deadline);
  });
}

uint64_t Pull(const Opened& opened, uint64_t version, const py::object& out, double timeout,
              const std::shared_ptr<Region>& region) {
  const ContiguousBytes destination(out, /*writable=*/true);
  const Deadline end = Deadline::After(timeout);
  WaitVersion(opened, version, timeout);
  ParameterClient& client = opened.server.engine->client();
  uint64_t got = 0;
  Waits::Unlocked unlocked(opened.server.engine->waits());
  Check(client.Pull(*opened.parameter, version, destination.data(), destination.size(), end,
                    region.get(), &got));
  return got;
}

template <typename Holder>
void AddSpec(py::class_<Holder>& holder) {
  holder.def_property_readonly("name", [](const Holder& h) { return h.Info().spec.name; })
      .def_property_readonly(
          "dtype", [](const Holder& h) { return std::string(DTypeName(h.Info().spec.dtype)); })
      .def_property_readonly("shape", [](const Holder& h) { return h.Info().spec.shape; })
      .def_property_readonly("contributors",
                             [](const Holder& h) { return h.Info().spec.contributors; })
      .def_property_readonly("block_bytes",
                             [](const Holder& h) { return h.Info().spec.block_bytes; })
      .def_property_readonly("consistency",
                             [](const Holder& h) { return h.Info().spec.consistency; })
      .def_property_readonly("nbytes", [](const Holder& h) { return h.Info().bytes; })
      .def_property_readonly("blocks", [](const Holder& h) { return h.Info().blocks; });
}

}  // namespace

void RegisterStore(py::module_& module) {
  py::enum_<Consistency>(module, "Consistency")
      .value("BSP", Consistency::kBsp)
      .value("ASP", Consistency::kAsp);

  py::class_<Served> served(module, "Served", py::buffer_protocol());
  served
      .def_buffer(
          [](Served& s) { return py::buffer_info(s.published, static_cast<py::ssize_t>(s.bytes)); })
      .def_property_readonly("version", [](const Served& s) { return s.Info().version; })
      .def_property_readonly("step", [](const Served& s) { return s.Info().step; })
      .def("collect", &Collect)
      .def("publish", &Publish);
  AddSpec(served);

  py::class_<Opened> opened(module, "Parameter");
  opened.def("push", &Push).def("pull", &Pull).def("wait_version", &WaitVersion);
  AddSpec(opened);

  module.def("serve", [](const EnginePtr& engine, std::string name, const std::string& dtype,
                         std::vector<uint64_t> shape, uint32_t contributors, uint32_t block_bytes,
                         Consistency consistency) {
    const auto type = DTypeFromName(dtype);
    if (!type) {
      throw StatusError({StatusCode::kInvalidArgument,
                         "parameters of dtype " + dtype +
                             " are not served: float32, float64, float16, bfloat16, int32 and "
                             "int64 are"});
    }
    return Serve(
        engine, {std::move(name), *type, std::move(shape), contributors, block_bytes, consistency});
  });
  module.def("open_parameter", &Open);
}

}  // namespace rdmabatch::python
