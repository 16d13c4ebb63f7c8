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
from tf_rdmabatch.bench.strategy_cases import PARTS, Work
from tf_rdmabatch.bench.strategy_job import StrategyJob

# A run counts as quiet while other processes took less than this of the machine, in cores.
QUIET_LOAD = 0.1
# Of a run, before the first one: what is run for the first time takes longer.
WARM_UP = 0.25

FIGURES = ("steps_per_s", "gb_per_s", "cpu_s_per_gb", "cpu_s_per_step", "other_load")
# Of networks and layers.
PART_FIGURES = ("round_s", "compute_s", "communication_s", "hidden_share", "hidden_of_possible")
# Of graphs.
TRACE_FIGURES = ("trace_s", "trace_cpu_s", "graph_nodes", "graph_functions")


@dataclass(frozen=True)
class Setting:
    """How each work is run."""

    systems: Sequence[str]
    workers: int
    servers: int
    repeat: int
    seconds: float
    transport: str = "auto"


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
                    environment={"TF_RDMABATCH_TRANSPORT": setting.transport},
                )
            )
            for system in setting.systems
        }
        advance(f"{work.name} starts")
        nbytes = {system: job.wait_ready()["nbytes"] for system, job in jobs.items()}
        parts = PARTS if work.has_parts else ()
        for job in jobs.values():
            for part in ("whole", *parts):
                job.run(WARM_UP * setting.seconds, part)
        own = [os.getpid(), *(pid for job in jobs.values() for pid in job.processes)]
        runs: dict[str, list[dict[str, float]]] = {system: [] for system in jobs}
        for _ in range(setting.repeat):
            for system, job in jobs.items():
                advance(f"{work.name} {system}")
                figures = _run(job, setting.seconds, nbytes[system], own)
                if parts:
                    figures |= _run_parts(job, setting, figures["steps_per_s"])
                runs[system].append(figures)
    return [
        {"work": work.name, "system": system, "workers": setting.workers}
        | {"servers": setting.servers, "bytes_per_step": nbytes[system]}
        | dict.fromkeys(TRACE_FIGURES)
        | summarise(runs[system])
        for system in jobs
    ]


def trace_work(
    work: Work, worker_counts: Sequence[int], servers: int, advance: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Have the graph of a round made for each number of workers, and return a row for each.

    Parameters
    ----------
    work
        Whose step.
    worker_counts, servers
        Of the clusters.
    advance
        Called before each with what is done.
    """
    rows = []
    nothing = dict.fromkeys((*FIGURES, *PART_FIGURES, "spread", "bytes_per_step"))
    request = {"system": "tf_rdmabatch", "work": work.request, "trace": True}
    for workers in worker_counts:
        advance(f"{work.name} {workers} workers")
        with StrategyJob(f"{work.name} with {workers} workers", request, workers, servers) as job:
            row = {"work": work.name, "system": "tf_rdmabatch", "workers": workers}
            rows.append(row | {"servers": servers} | nothing | job.wait_ready())
    return rows


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


def _run_parts(job: StrategyJob, setting: Setting, steps_per_s: float) -> dict[str, float]:
    """Return the time of a round, of its parts alone, and how much of communication was hidden."""
    figures = {"round_s": setting.workers / steps_per_s}
    for part in PARTS:
        done = job.run(setting.seconds / 2, part)
        figures[f"{part}_s"] = done["seconds"] * setting.workers / done["steps"]
    return figures | hidden_shares(**figures)


def hidden_shares(round_s: float, compute_s: float, communication_s: float) -> dict[str, float]:
    """Return how much of communication was hidden, and how much of what can be: all of the shorter.

    Parameters
    ----------
    round_s, compute_s, communication_s
        Seconds of a round, and of its parts alone.
    """
    hidden = compute_s + communication_s - round_s
    return {
        "hidden_share": min(1.0, max(0.0, hidden / communication_s)),
        "hidden_of_possible": min(1.0, max(0.0, hidden / min(compute_s, communication_s))),
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
    names = [name for name in (*FIGURES, *PART_FIGURES) if name in runs[0]]
    medians = {name: statistics.median(run[name] for run in counted) for name in names}
    spread = {}
    for name, median in medians.items():
        values = [run[name] for run in counted]
        spread[name] = (max(values) - min(values)) / median if median else 0.0
    return {
        **dict.fromkeys(PART_FIGURES),
        **medians,
        "spread": spread,
        "seconds": statistics.median(run["seconds"] for run in counted),
        "runs": len(runs),
        "quiet_runs": len(quiet),
    }
