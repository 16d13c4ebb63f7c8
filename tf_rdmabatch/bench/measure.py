"""Runs cases: every process of a case counts the same stretch of time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from tf_rdmabatch.bench.cases import Case, TaskPlan, plan
from tf_rdmabatch.bench.cpu_time import machine_seconds
from tf_rdmabatch.bench.figures import figures_of_run
from tf_rdmabatch.bench.processes import ProcessPool, TaskProcess, call_all
from tf_rdmabatch.cli import CommandError

SETUP_SECONDS = 60.0
# Until everybody has begun, and, after the counting, until everybody has counted.
LEAD_SECONDS = 0.03
TAIL_SECONDS = 0.03
DRAIN_SECONDS = 0.05
# A busy machine may let a process begin or end its count late, and then the sides' counts are of
# different stretches: such a run is taken again.
TOLERANCE = 0.02
ATTEMPTS = 10


class LateRunError(Exception):
    """A process did not count the interval that it was given."""


def run_case(
    pool: ProcessPool, case: Case, seconds: float, address: str, *, machine_cpu: bool = False
) -> dict[str, float | None]:
    """Run a case once and return its figures; `late_runs` of them is how many were thrown away.

    Parameters
    ----------
    pool
        Where the processes come from.
    case
        What to run.
    seconds
        How long to count under load; lone messages are counted for half of that.
    address
        The host part of the address at which tasks listen.
    machine_cpu
        Count the busy time of the whole machine, and not that of the processes alone: software
        devices work in threads of the kernel, which no process is charged for.
    """
    for late in range(ATTEMPTS):
        try:
            figures = _attempt(pool, case, seconds, address, machine_cpu=machine_cpu)
        except LateRunError:
            continue
        if not figures["messages_per_s"] and case.pattern != "idle":
            raise CommandError(
                f"{case.transport} {case.pattern} {case.confirm} with {case.bytes} bytes: nothing "
                f"arrived within {seconds:g} s"
            )
        return {**figures, "late_runs": float(late)}
    raise CommandError(
        f"this machine is too busy: in {ATTEMPTS} runs not all processes counted the same "
        f"{seconds:g} s; longer --seconds are less sensitive"
    )


def _attempt(
    pool: ProcessPool, case: Case, seconds: float, address: str, *, machine_cpu: bool
) -> dict[str, float | None]:
    plans = plan(case)
    processes = pool.take(len(plans))
    _set_up(processes, plans, address)
    load, cpu_s = _phase(processes, "load", seconds)
    latency = None
    if case.is_messages:
        time.sleep(DRAIN_SECONDS)
        latency, _ = _phase(processes, "latency", seconds / 2)
    call_all(processes, "close", [{}] * len(processes), SETUP_SECONDS)
    check_interval(load, seconds)
    return figures_of_run(case, load, latency, cpu_s if machine_cpu else None)


def run_all(
    cases: list[list[Case]], repeats: int, run: Callable[[Case], dict[str, float | None]]
) -> Iterator[tuple[Case, dict[str, float | None]]]:
    """Run the cases of each group in turn, `repeats` times, so that a drift touches all alike."""
    for group in cases:
        for _ in range(repeats):
            for case in group:
                yield case, run(case)


def check_interval(tasks: list[dict[str, Any]], seconds: float) -> None:
    """Raise `LateRunError` unless every task counted for `seconds`."""
    if any(abs(task["seconds"] / seconds - 1) > TOLERANCE for task in tasks):
        raise LateRunError


def _set_up(processes: list[TaskProcess], plans: list[TaskPlan], address: str) -> None:
    call_all(processes, "create", [p.options for p in plans], SETUP_SECONDS)
    listening = [process for process, p in zip(processes, plans, strict=True) if p.listens]
    addresses = call_all(
        listening, "listen", [{"address": f"{address}:0"}] * len(listening), SETUP_SECONDS
    )
    for process, task in zip(processes, plans, strict=True):
        if task.connects_to:
            process.send(
                "connect",
                addresses=[addresses[i] for i in task.connects_to],
                connections=task.connections,
                timeout=SETUP_SECONDS / 2,
            )
    for process, task in zip(processes, plans, strict=True):
        if task.connects_to:
            process.receive(SETUP_SECONDS)
    call_all(
        processes,
        "prepare",
        [{"peers": p.awaits, "timeout": SETUP_SECONDS / 2} for p in plans],
        SETUP_SECONDS,
    )


def _phase(
    processes: list[TaskProcess], phase: str, seconds: float
) -> tuple[list[dict[str, Any]], float]:
    start = time.monotonic_ns() + int((LEAD_SECONDS + 0.2 * seconds) * 1e9)
    end = start + int(seconds * 1e9)
    interval = {"start_ns": start, "end_ns": end, "stop_ns": end + int(TAIL_SECONDS * 1e9)}
    for process in processes:
        process.send("run", phase=phase, **interval)
    _sleep_until(start)
    busy = machine_seconds()
    _sleep_until(end)
    busy = machine_seconds() - busy
    return [process.receive(seconds + SETUP_SECONDS) for process in processes], busy


def _sleep_until(ns: int) -> None:
    time.sleep(max(0, ns - time.monotonic_ns()) / 1e9)
