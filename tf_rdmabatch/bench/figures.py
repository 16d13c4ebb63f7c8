"""Figures out of counts: of one run, and of several runs of a row."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tf_rdmabatch.bench.cases import Case

# The figures of a row, each a median over runs; a figure that a pattern does not have is None.
FIGURES = (
    "messages_per_s",
    "gb_per_s",
    "p50_us",
    "p99_us",
    "cpu_s_per_gb",
    "cpu_s_per_million_messages",
    "doorbells_per_message",
    "completions_per_message",
    "acks_per_message",
    "memory_bytes_per_peer",
    "fairness",
    "p99_fairness",
    "cpu_s",
    "seconds",
)

Buckets = Sequence[Sequence[int]]


def quantile_us(histograms: Iterable[Buckets], share: float) -> float | None:
    """Return a quantile, in microseconds, of all samples of `histograms`; None when there are none.

    Parameters
    ----------
    histograms
        Each a sequence of (nanoseconds, samples).
    share
        Between 0 and 1.
    """
    buckets = sorted((value, count) for histogram in histograms for value, count in histogram)
    left = share * sum(count for _, count in buckets)
    for value, count in buckets:
        left -= count
        if left <= 0:
            return value / 1000
    return None


def figures_of_run(
    case: Case,
    load: Sequence[Mapping[str, Any]],
    latency: Sequence[Mapping[str, Any]] | None,
    cpu_s: float | None = None,
) -> dict[str, float | None]:
    """Return the figures of one run.

    Parameters
    ----------
    case
        What was run.
    load
        What each task measured under load.
    latency
        What each task measured of lone messages; None where `load` holds latencies itself.
    cpu_s
        CPU time to count in place of that of the tasks' processes.
    """
    seconds = statistics.fmean(task["seconds"] for task in load)
    messages = sum(task["messages"] for task in load)
    cpu = sum(task["cpu_s"] for task in load) if cpu_s is None else cpu_s
    gigabytes = messages * case.operation_bytes / 1e9

    def count(*names: str) -> int:
        return sum(task["counters"][name] for task in load for name in names)

    def per_message(value: float) -> float | None:
        return value / messages if messages else None

    histograms = [
        peer["latencies"]
        for task in (load if latency is None else latency)
        for peer in task["peers"]
        if peer["latencies"]
    ]
    cpu_per_message = per_message(cpu)
    return {
        "messages_per_s": messages / seconds,
        "gb_per_s": gigabytes / seconds,
        "p50_us": quantile_us(histograms, 0.5),
        "p99_us": quantile_us(histograms, 0.99),
        "cpu_s_per_gb": cpu / gigabytes if gigabytes else None,
        "cpu_s_per_million_messages": None if cpu_per_message is None else 1e6 * cpu_per_message,
        "doorbells_per_message": per_message(count("doorbells")),
        "completions_per_message": per_message(count("send_completions", "receive_completions")),
        "acks_per_message": per_message(count("acks")),
        "memory_bytes_per_peer": load[0]["memory_bytes_per_peer"],
        "fairness": _fairness(case, load),
        "p99_fairness": _p99_fairness(case, histograms),
        "cpu_s": cpu,
        "seconds": seconds,
    }


def _fairness(case: Case, load: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the slowest peer's rate over the mean rate."""
    if case.pattern == "many-to-one":
        rates = [peer["messages"] for peer in load[0]["peers"]]
    elif case.pattern == "one-to-many":
        rates = [peer["messages"] for task in load[1:] for peer in task["peers"]]
    elif case.pattern == "ring":
        rates = [task["messages"] for task in load]
    else:
        return None
    mean = statistics.fmean(rates)
    return min(rates) / mean if mean else None


def _p99_fairness(case: Case, histograms: Sequence[Buckets]) -> float | None:
    """Return the worst peer's p99 over the median peer's."""
    if not case.is_messages or case.pattern == "one-to-one" or not histograms:
        return None
    tails = [tail for h in histograms if (tail := quantile_us([h], 0.99)) is not None]
    middle = statistics.median(tails)
    return max(tails) / middle if middle else None


def row_of(case: Case, runs: Sequence[Mapping[str, float | None]]) -> dict[str, Any]:
    """Return a row: the medians of the runs, and the spread, (largest - smallest) / median."""
    row: dict[str, Any] = {
        "transport": case.transport,
        "pattern": case.pattern,
        "confirm": case.confirm,
        "bytes": case.bytes,
        "peers": case.peers,
        "servers": case.servers,
        "parameters": case.parameters,
        "slots": case.tuning.slots,
        "slot_bytes": case.slot_bytes,
        "queue_pairs": case.tuning.queue_pairs,
        "window": case.tuning.window,
        "runs": len(runs),
        "late_runs": int(sum(run.get("late_runs") or 0 for run in runs)),
    }
    spread: dict[str, float | None] = {}
    for name in FIGURES:
        values = [value for run in runs if (value := run[name]) is not None]
        if not values:
            row[name] = spread[name] = None
            continue
        middle = statistics.median(values)
        row[name] = middle
        spread[name] = (max(values) - min(values)) / middle if middle else 0.0
    row["spread"] = spread
    return row
