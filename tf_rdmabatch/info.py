"""What can run on this machine, and what is missing for the rest: ``tf-rdmabatch info``."""

from __future__ import annotations

import argparse
import json
import os
import resource
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import tf_rdmabatch
from tf_rdmabatch import _core
from tf_rdmabatch.devices import DeviceList, list_devices

HUGE_PAGES = Path("/sys/kernel/mm/hugepages")


@dataclass(frozen=True)
class Transport:
    """A transport of this build. `reason` says what to do where it is not available."""

    name: str
    available: bool
    reason: str


@dataclass(frozen=True)
class HugePages:
    """The pool of huge pages of one size; `size`, in bytes, times `free` can be had."""

    size: int
    total: int
    free: int


@dataclass(frozen=True)
class Info:
    """What this machine offers to the engine. A memlock limit of None is unlimited; else bytes."""

    version: str
    transports: list[Transport]
    rdma: DeviceList
    memlock_soft: int | None
    memlock_hard: int | None
    huge_pages: list[HugePages]
    cpus: int


def collect() -> Info:
    """Ask the engine's transports, the devices and the kernel."""
    soft, hard = (
        None if limit == resource.RLIM_INFINITY else limit
        for limit in resource.getrlimit(resource.RLIMIT_MEMLOCK)
    )
    return Info(
        version=tf_rdmabatch.__version__,
        transports=[Transport(name, ok, reason) for name, ok, reason in _core.transports()],
        rdma=list_devices(),
        memlock_soft=soft,
        memlock_hard=hard,
        huge_pages=list_huge_pages(),
        cpus=len(os.sched_getaffinity(0)),
    )


def list_huge_pages(root: Path = HUGE_PAGES) -> list[HugePages]:
    """Return the pools of huge pages, smallest pages first."""
    if not root.is_dir():
        return []
    pools = [
        HugePages(
            size=int(pool.name.removeprefix("hugepages-").removesuffix("kB")) * 1024,
            total=int((pool / "nr_hugepages").read_text()),
            free=int((pool / "free_hugepages").read_text()),
        )
        for pool in root.iterdir()
    ]
    return sorted(pools, key=lambda pool: pool.size)


def to_json(info: Info) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return asdict(info)


def render(info: Info, console: Console) -> None:
    """Print `info` as tables."""
    console.print(f"tf-rdmabatch {info.version}")
    console.print()

    transports = Table("Transport", "Here", "Why not, and what to do", title="Transports")
    for transport in info.transports:
        transports.add_row(transport.name, "yes" if transport.available else "no", transport.reason)
    console.print(transports)
    console.print()

    if info.rdma.devices:
        console.print(_device_table(info.rdma))
    else:
        console.print("RDMA devices: none")
    console.print(f"(read through {info.rdma.source}{_continued(info.rdma.note)})")
    console.print()

    machine = Table("Resource", "Value", title="Machine")
    machine.add_row("CPUs", str(info.cpus))
    machine.add_row("Memory that may be locked, soft limit", format_limit(info.memlock_soft))
    machine.add_row("Memory that may be locked, hard limit", format_limit(info.memlock_hard))
    for pool in info.huge_pages:
        label = f"Huge pages of {format_bytes(pool.size)}"
        machine.add_row(label, f"{pool.total}, {pool.free} of them free")
    if not info.huge_pages:
        machine.add_row("Huge pages", "none: the kernel has no support for them")
    console.print(machine)


def format_limit(limit: int | None) -> str:
    """Return a resource limit for people."""
    return "unlimited" if limit is None else format_bytes(limit)


def format_bytes(count: int) -> str:
    """Return a number of bytes for people, in the largest unit of which there is at least one."""
    for shift, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << shift:
            return f"{count / (1 << shift):.4g} {unit}"
    return f"{count} B"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``tf-rdmabatch info``."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    info = collect()
    if options.json:
        print(json.dumps(to_json(info), indent=2))
    else:
        render(info, Console(markup=False, highlight=False, soft_wrap=False))
    return 0


def _device_table(rdma: DeviceList) -> Table:
    table = Table("Device", "Protocol", "Port", "State", "Link layer", "GIDs", title="RDMA devices")
    for device in rdma.devices:
        if device.error:
            table.add_row(device.name, device.protocol, "", device.error, "", "")
        for port in device.ports:
            gids = "\n".join(f"{gid.index}: {gid.gid} ({gid.type})" for gid in port.gids)
            table.add_row(
                device.name, device.protocol, str(port.number), port.state, port.link_layer, gids
            )
    return table


def _continued(note: str) -> str:
    return f"; {note}" if note else ""
