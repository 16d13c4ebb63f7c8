"""CPU time of the machine and of processes, in seconds, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_TICK = 1 / os.sysconf("SC_CLK_TCK")


def machine_seconds() -> float:
    """Return the busy time of all processors since boot: all but idle, iowait and steal."""
    user, nice, system, _, _, irq, softirq, *_ = (
        int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) * _TICK


def processes_seconds(pids: Iterable[int]) -> float:
    """Return user and system time of all threads of processes; one that has ended counts 0."""
    ticks = 0
    for pid in pids:
        fields = _stat(pid)
        if fields is not None:
            ticks += int(fields[11]) + int(fields[12])
    return ticks * _TICK


def descendants(pid: int) -> list[int]:
    """Return a process, its children, their children, and so on."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            fields = _stat(int(folder.name))
            if fields is not None:
                children.setdefault(int(fields[1]), []).append(int(folder.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def _stat(pid: int) -> list[str] | None:
    """Return the fields after the command's name, which may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
