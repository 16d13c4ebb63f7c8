"""Limits the processor time of processes with Linux's control groups, version 1 or 2."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

_PERIOD_US = 20_000
# The kernel's least quota.
_LEAST_US = 1_000
_MOUNTS = Path("/proc/mounts")


class QuotaError(Exception):
    """Processes cannot be limited here; the message says why."""


class CpuQuota:
    """Keeps processes to a share of a processor; what they start later is in it too.

    A context manager: the processes return to where they were when it ends.

    Parameters
    ----------
    pids
        Of the processes, all their threads included. They share the quota.
    fraction
        Processor time per time: 0.5 is half a processor, 2 is two.

    Raises
    ------
    QuotaError
        There is no control group for processor time, this user may not make one, or a process is
        not there.
    ValueError
        The fraction is too small for the kernel.
    """

    def __init__(self, pids: Iterable[int], fraction: float) -> None:
        if not _LEAST_US / _PERIOD_US <= fraction <= 1e4:
            raise ValueError(
                f"a quota is from {_LEAST_US / _PERIOD_US:g} to 10000 processors, not {fraction!r}"
            )
        self._pids = list(pids)
        self._quota = round(fraction * _PERIOD_US)
        self._version, self._parent = _find_group()
        self._group = self._parent / f"tf-rdmabatch-{os.getpid()}-{time.monotonic_ns():x}"

    def __enter__(self) -> CpuQuota:
        """Move the processes into a group of their own."""
        origins: dict[int, Path] = {}
        with _explained(self._parent):
            if self._version == 2:
                _enable_cpu(self._parent)
            self._group.mkdir()
        try:
            with _explained(self._group):
                if self._version == 2:
                    _write(self._group / "cpu.max", f"{self._quota} {_PERIOD_US}")
                else:
                    _write(self._group / "cpu.cfs_period_us", str(_PERIOD_US))
                    _write(self._group / "cpu.cfs_quota_us", str(self._quota))
            for pid in self._pids:
                origins[pid] = _group_of(pid, self._version, self._parent)
                with _explained(self._group, pid):
                    _write(self._group / "cgroup.procs", str(pid))
        except BaseException:
            self._origins = origins
            self.close()
            raise
        self._origins = origins
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the limit."""
        self.close()

    def close(self) -> None:
        """Move what is in the group back, and remove it; idempotent."""
        if not self._group.is_dir():
            return
        default = next(iter(self._origins.values()), self._parent)
        # What forks meanwhile takes another turn.
        for _ in range(100):
            for line in (self._group / "cgroup.procs").read_text().split():
                target = self._origins.get(int(line), default)
                with contextlib.suppress(OSError):
                    _write(target / "cgroup.procs", line)
            try:
                self._group.rmdir()
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                time.sleep(0.01)
            else:
                return
        raise QuotaError(f"the processes in {self._group} cannot be moved out of it")


def _find_group() -> tuple[int, Path]:
    """Return the version of the groups for processor time, and the folder for one more."""
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    unified = None
    for line in _MOUNTS.read_text().splitlines():
        _, folder, kind, options, *_ = line.split()
        if kind == "cgroup" and "cpu" in options.split(","):
            return 1, _existing(Path(folder), own.get("cpu", "/"))
        if kind == "cgroup2":
            unified = Path(folder)
    if unified is None:
        raise QuotaError("no control groups (cgroups) are mounted: see /proc/mounts")
    # Groups with processes may have no limited groups in them (the root may): ours is beside.
    group = _existing(unified, own.get("", "/"))
    parent = group if group == unified else group.parent
    available = parent / "cgroup.controllers"
    if not available.is_file() or "cpu" not in available.read_text().split():
        raise QuotaError(f"the control group {parent} has no controller of processor time (cpu)")
    return 2, parent


def _existing(mount: Path, path: str) -> Path:
    """Return the folder of a group; in a container its path may be another namespace's."""
    folder = mount / path.lstrip("/")
    return folder if folder.is_dir() else mount


def _enable_cpu(parent: Path) -> None:
    control = parent / "cgroup.subtree_control"
    if "cpu" not in control.read_text().split():
        _write(control, "+cpu")


def _group_of(pid: int, version: int, parent: Path) -> Path:
    """Return the group that a process is in."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        raise QuotaError(f"there is no process {pid}") from None
    mount = parent
    while mount.parent.joinpath("cgroup.procs").is_file():
        mount = mount.parent
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(",") if version == 1 else not controllers:
            return _existing(mount, path)
    return mount


def _write(path: Path, text: str) -> None:
    # Each write is a command: what is buffered would fail late.
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _explained(folder: Path, pid: int | None = None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if pid is not None and error.errno == errno.ESRCH:
            raise QuotaError(f"there is no process {pid}") from error
        what = f"making a control group in {folder}" if pid is None else f"moving process {pid}"
        raise QuotaError(
            f"{what} failed: {error.strerror}. It takes the rights of root, or of whom the "
            "group was delegated to, and a host or container that lets them be changed"
        ) from error
