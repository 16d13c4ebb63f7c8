#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tf_rdmabatch/cc/python/buffers.h"
#include "tf_rdmabatch/cc/python/convert.h"
#include "tf_rdmabatch/cc/python/native_engine.h"
#include "tf_rdmabatch/cc/python/register.h"
#include "tf_rdmabatch/cc/python/status_error.h"
#include "tf_rdmabatch/cc/python/wait.h"

namespace py = pybind11;

namespace rdmabatch::python {
namespace {

// One-sided transfers end with the data's movement, whatever the peer's process does. Between
// pieces of this many bytes signals are looked at.
constexpr uint64_t kPieceBytes = uint64_t{16} << 20;

struct NativeRemoteRegion {
  NativeConnection owner;
  RemoteRegion region;
};

using PyTransfer =
    std::tuple<std::shared_ptr<Region>, uint64_t, const NativeRemoteRegion*, uint64_t, uint64_t>;

void SendOne(const NativeConnection& to, const OutgoingMessage& message, double timeout,
             bool more) {
  Connection* connection = to.operator->();
  if (message.body.size() <= connection->max_payload()) {
    WaitInSlices(to.engine->waits(), timeout,
                 [&](Deadline deadline) { return connection->Send(message, deadline, more); });
    return;
  }
  Check(RunWatched(
      to.engine->waits(), [&] { return connection->Send(message, Deadline::After(timeout), more); },
      [&] { connection->Close(); }));
}

void Send(const NativeConnection& to, const py::object& data, uint64_t tag, double timeout) {
  const ContiguousBytes bytes(data);
  SendOne(to, {MessageKind::kUser, tag, {}, bytes.span()}, timeout, false);
}

void SendMany(const NativeConnection& to, const py::sequence& messages, uint64_t tag,
              double timeout) {
  std::vector<std::unique_ptr<ContiguousBytes>> bodies;
  bodies.reserve(messages.size());
  for (const py::handle message : messages) {
    bodies.push_back(std::make_unique<ContiguousBytes>(message));
  }
  const Deadline end = Deadline::After(timeout);
  Connection* connection = to.operator->();
  size_t next = 0;
  // Without waiting and without the GIL as far as it goes, then as a single message.
  while (next < bodies.size()) {
    Status status;
    {
      py::gil_scoped_release unlocked;
      while (next < bodies.size() && status.ok()) {
        if (bodies[next]->size() > connection->max_payload()) break;
        status = connection->TrySend({MessageKind::kUser, tag, {}, bodies[next]->span()}, true);
        if (status.ok()) ++next;
      }
      if (next < bodies.size() || !status.ok()) connection->Flush();
    }
    if (!status.ok() && status.code() != StatusCode::kResourceExhausted) Check(std::move(status));
    if (next == bodies.size()) break;
    const double left = static_cast<double>(end.at_ns() - NowNs()) / 1e9;
    SendOne(to, {MessageKind::kUser, tag, {}, bodies[next]->span()}, left, true);
    ++next;
  }
  py::gil_scoped_release unlocked;
  connection->Flush();
}

py::tuple Receive(const NativeConnection& from, double timeout) {
  MessageQueue& queue = from.engine->queue();
  QueuedMessage message;
  WaitInSlices(from.engine->waits(), timeout,
               [&](Deadline deadline) { return queue.Take(from.inbox.get(), &message, deadline); });
  const uint64_t tag = message.tag();
  return py::make_tuple(tag, TakePayload(&message));
}

NativeRemoteRegion Import(const NativeConnection& connection, const std::string& descriptor) {
  py::gil_scoped_release unlocked;
  return {connection, Take(connection->Import(descriptor))};
}

void Transfer(const NativeConnection& with, bool write, const std::vector<PyTransfer>& transfers,
              double timeout) {
  const Deadline end = Deadline::After(timeout);
  std::vector<RegionTransfer> pieces;
  uint64_t gathered = 0;
  auto run = [&] {
    {
      Waits::Unlocked unlocked(with.engine->waits());
      const Span<const RegionTransfer> chain(pieces.data(), pieces.size());
      Check(write ? with->Write(chain, end) : with->Read(chain, end));
    }
    pieces.clear();
    gathered = 0;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  };
  for (const auto& [local, local_offset, remote, remote_offset, bytes] : transfers) {
    if (remote->owner.connection != with.connection) {
      throw StatusError(
          {StatusCode::kInvalidArgument, "the remote region was imported over another connection"});
    }
    for (uint64_t done = 0; done < bytes;) {
      const uint64_t piece = std::min(bytes - done, kPieceBytes - gathered);
      pieces.push_back(
          {local.get(), local_offset + done, &remote->region, remote_offset + done, piece});
      done += piece;
      gathered += piece;
      if (gathered == kPieceBytes) run();
    }
  }
  if (!pieces.empty()) run();
}

py::tuple Peer(const NativeConnection& connection) {
  const PeerInfo& peer = connection->peer();
  return py::make_tuple(peer.name, peer.address, peer.host, peer.pid);
}

}  // namespace

void RegisterConnection(py::module_& module) {
  py::class_<Region, std::shared_ptr<Region>>(module, "Region", py::buffer_protocol())
      .def_buffer([](Region& region) {
        return py::buffer_info(region.data(), static_cast<py::ssize_t>(region.size()));
      })
      .def_property_readonly("nbytes", [](const Region& r) { return r.size(); })
      .def_property_readonly("address",
                             [](const Region& r) { return reinterpret_cast<uintptr_t>(r.data()); });

  py::class_<NativeRemoteRegion>(module, "RemoteRegion")
      .def_property_readonly("nbytes", [](const NativeRemoteRegion& r) { return r.region.bytes; })
      .def_property_readonly("writable",
                             [](const NativeRemoteRegion& r) { return r.region.writable; });

  py::class_<NativeConnection>(module, "Connection")
      .def("send", &Send)
      .def("send_many", &SendMany)
      .def("receive", &Receive)
      .def("export_region", [](const NativeConnection& c,
                               const Region& region) { return py::bytes(Take(c->Export(region))); })
      .def("import_region", &Import)
      .def("transfer", &Transfer)
      .def("close",
           [](const NativeConnection& c) {
             py::gil_scoped_release unlocked;
             c->Close();
           })
      .def_property_readonly("closed", [](const NativeConnection& c) { return c->closed(); })
      .def_property_readonly("id", [](const NativeConnection& c) { return c.connection->id(); })
      .def_property_readonly("peer", &Peer)
      .def_property_readonly("transport", [](const NativeConnection& c) { return c->transport(); })
      .def_property_readonly("choice", [](const NativeConnection& c) { return c->choice(); })
      .def_property_readonly("confirm",
                             [](const NativeConnection& c) {
                               return c->confirm() == Confirm::kEach ? "each" : "batch";
                             })
      .def_property_readonly("max_payload",
                             [](const NativeConnection& c) { return c->max_payload(); })
      .def_property_readonly("memory_bytes",
                             [](const NativeConnection& c) { return c->memory_bytes(); })
      .def("counters", [](const NativeConnection& c) { return ToDict(c->counters()); });
}

}  // namespace rdmabatch::python
