"""The RDMA devices of this machine, through pyverbs where it works, else from sysfs."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SYSFS = Path("/sys/class/infiniband")


@dataclass(frozen=True)
class Gid:
    """An address of a port. `type` is ``RoCE v1``, ``RoCE v2``, ``InfiniBand`` or ``iWARP``."""

    index: int
    gid: str
    type: str


@dataclass(frozen=True)
class Port:
    """A port of a device. `state` is the verbs name in capitals, such as ``ACTIVE``."""

    number: int
    state: str
    link_layer: str
    gids: list[Gid]


@dataclass(frozen=True)
class Device:
    """An RDMA device.

    `protocol` is ``InfiniBand``, ``RoCE`` or ``iWARP``; `error` says why it could not be read, or
    is empty.
    """

    name: str
    protocol: str
    ports: list[Port]
    error: str = ""


@dataclass(frozen=True)
class DeviceList:
    """The devices, where they were read (``pyverbs`` or ``sysfs``), and why not through pyverbs."""

    source: str
    devices: list[Device]
    note: str = ""


def list_devices(sysfs: Path = SYSFS) -> DeviceList:
    """Return the RDMA devices.

    Parameters
    ----------
    sysfs
        The directory that is read where pyverbs cannot tell.
    """
    try:
        from pyverbs import device as verbs  # noqa: PLC0415  (optional)
        from pyverbs.pyverbs_error import PyverbsError  # noqa: PLC0415
    except ImportError as error:
        return DeviceList("sysfs", _through_sysfs(sysfs), f"pyverbs cannot be imported: {error}")
    try:
        return DeviceList("pyverbs", _through_pyverbs(verbs, PyverbsError))
    except PyverbsError as error:  # what it raises where the kernel has no RDMA support
        return DeviceList("sysfs", _through_sysfs(sysfs), f"pyverbs: {error}")


def _through_pyverbs(verbs: Any, error_type: type[Exception]) -> list[Device]:
    devices = []
    for entry in verbs.get_device_list():
        name = entry.name.decode()
        is_iwarp = verbs.translate_node_type(entry.node_type) == "RNIC"
        try:
            with verbs.Context(name=name) as context:
                count = context.query_device().phys_port_cnt
                ports = [
                    _pyverbs_port(verbs, context, number, is_iwarp)
                    for number in range(1, count + 1)
                ]
            devices.append(_device(name, is_iwarp, ports))
        except error_type as error:
            devices.append(Device(name, "unknown", [], str(error)))
    return sorted(devices, key=lambda device: device.name)


def _pyverbs_port(verbs: Any, context: Any, number: int, is_iwarp: bool) -> Port:
    port = context.query_port(number)
    link_layer = verbs.translate_link_layer(port.link_layer)
    gids = [
        Gid(
            entry.gid_index,
            _format_gid(entry.gid_str()),
            _gid_type(is_iwarp, link_layer, "v2" in verbs.translate_gid_type(entry.gid_type)),
        )
        for entry in context.query_gid_table(port.gid_tbl_len)
        if entry.port_num == number
    ]
    state = verbs.port_state_to_str(port.state).split("(")[0].strip().upper()  # "Active (4)"
    return Port(number, state, link_layer, gids)


def _through_sysfs(root: Path) -> list[Device]:
    if not root.is_dir():
        return []
    devices = []
    for directory in sorted(root.iterdir()):
        try:
            is_iwarp = "RNIC" in (directory / "node_type").read_text()
            numbers = sorted(int(port.name) for port in (directory / "ports").iterdir())
            ports = [_sysfs_port(directory / "ports" / str(number), is_iwarp) for number in numbers]
            devices.append(_device(directory.name, is_iwarp, ports))
        except (OSError, ValueError) as error:
            devices.append(Device(directory.name, "unknown", [], str(error)))
    return devices


def _sysfs_port(directory: Path, is_iwarp: bool) -> Port:
    link_layer = (directory / "link_layer").read_text().strip()
    gids = []
    for file in sorted((directory / "gids").iterdir(), key=lambda path: int(path.name)):
        gid = file.read_text().strip()
        if not gid.strip("0:"):  # an empty entry of the table
            continue
        is_v2 = "v2" in (directory / "gid_attrs" / "types" / file.name).read_text()
        gids.append(Gid(int(file.name), _format_gid(gid), _gid_type(is_iwarp, link_layer, is_v2)))
    state = (directory / "state").read_text().split(":")[-1].strip()  # "4: ACTIVE"
    return Port(int(directory.name), state, link_layer, gids)


def _device(name: str, is_iwarp: bool, ports: list[Port]) -> Device:
    if is_iwarp:
        protocol = "iWARP"
    elif any(port.link_layer == "Ethernet" for port in ports):
        protocol = "RoCE"
    else:
        protocol = "InfiniBand"
    return Device(name, protocol, ports)


def _gid_type(is_iwarp: bool, link_layer: str, is_v2: bool) -> str:
    if is_iwarp:
        return "iWARP"
    if link_layer != "Ethernet":
        return "InfiniBand"
    return "RoCE v2" if is_v2 else "RoCE v1"


def _format_gid(text: str) -> str:
    """Return a GID in the short form, with an IPv4 address readable: ``::ffff:10.9.0.1``."""
    address = ipaddress.IPv6Address(text)
    return f"::ffff:{address.ipv4_mapped}" if address.ipv4_mapped else str(address)
