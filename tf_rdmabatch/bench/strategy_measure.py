"""Measures works on systems, in turn, and turns what was counted into figures."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tf_rdmabatch.bench.cpu_time import machine_seconds, processes_seconds
from tf_rdmabatch.bench.strategy_cases import Work
from tf_rdmabatch.bench.strategy_job import StrategyJob

# A run counts as quiet while other processes took less than this of the machine, in cores.
QUIET_LOAD = 0.1
# Of a run, before the first one: what is run for the first time takes longer.
WARM_UP = 0.25

FIGURES = ("steps_per_s", "gb_per_s", "cpu_s_per_gb", "cpu_s_per_step", "other_load")


@dataclass(frozen=True)
class Setting:
    """How each work is run."""

    systems: Sequence[str]
    workers: int
    servers: int
    repeat: int
    seconds: float


def measure_work(
    work: Work, setting: Setting, advance: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Run a work on each system, in turn, and return a row for each.

    The jobs of all systems are there at the same time; those that wait use no CPU to speak of.

    Parameters
    ----------
    work
        What to run.
    setting
        How.
    advance
        Called before each run with what is done, as the progress bar shows it.
    """
    with contextlib.ExitStack() as stack:
        jobs = {
            system: stack.enter_context(
                StrategyJob(
                    f"{work.name} on {system}",
                    {"system": system, "work": work.request},
                    setting.workers,
                    setting.servers,
                )
            )
            for system in setting.systems
        }
        advance(f"{work.name} starts")
        nbytes = {system: job.wait_ready()["nbytes"] for system, job in jobs.items()}
        for job in jobs.values():
            job.run(WARM_UP * setting.seconds)
        own = [os.getpid(), *(pid for job in jobs.values() for pid in job.processes)]
        runs: dict[str, list[dict[str, float]]] = {system: [] for system in jobs}
        for _ in range(setting.repeat):
            for system, job in jobs.items():
                advance(f"{work.name} {system}")
                runs[system].append(_run(job, setting.seconds, nbytes[system], own))
    return [
        {"work": work.name, "system": system, "workers": setting.workers}
        | {"servers": setting.servers, "bytes_per_step": nbytes[system]}
        | summarise(runs[system])
        for system in jobs
    ]


def _run(job: StrategyJob, seconds: float, nbytes: int, own: Sequence[int]) -> dict[str, float]:
    begin, busy, own_busy = time.monotonic(), machine_seconds(), processes_seconds(own)
    cpu = processes_seconds(job.processes)
    done = job.run(seconds)
    cpu = processes_seconds(job.processes) - cpu
    others = machine_seconds() - busy - (processes_seconds(own) - own_busy)
    elapsed = time.monotonic() - begin
    gigabytes = done["steps"] * nbytes / 1e9
    return {
        "steps_per_s": done["steps"] / done["seconds"],
        "gb_per_s": gigabytes / done["seconds"],
        "cpu_s_per_gb": cpu / gigabytes,
        "cpu_s_per_step": cpu / done["steps"],
        # The counters advance in steps of some milliseconds.
        "other_load": max(0.0, others / elapsed),
        "seconds": done["seconds"],
    }


def summarise(runs: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Return the medians over the quiet runs, or over all where none was.

    Parameters
    ----------
    runs
        Figures of each, at least one.

    Returns
    -------
    dict
        The figures; ``spread``, of each (largest - smallest) / median; ``runs``, ``quiet_runs``,
        and ``seconds`` of a run.
    """
    quiet = [run for run in runs if run["other_load"] < QUIET_LOAD]
    counted = quiet or runs
    medians = {name: statistics.median(run[name] for run in counted) for name in FIGURES}
    spread = {}
    for name, median in medians.items():
        values = [run[name] for run in counted]
        spread[name] = (max(values) - min(values)) / median if median else 0.0
    return {
        **medians,
        "spread": spread,
        "seconds": statistics.median(run["seconds"] for run in counted),
        "runs": len(runs),
        "quiet_runs": len(quiet),
    }
