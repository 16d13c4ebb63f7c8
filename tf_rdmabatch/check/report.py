"""Shows a check: tables for people; `Result.to_json` is for programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from tf_rdmabatch.check.findings import notes, problems
from tf_rdmabatch.check.reach import KINDS
from tf_rdmabatch.check.result import Pair, Result

# Columns of a matrix that a terminal has room for.
_WIDEST = 12


def render(result: Result, console: Console) -> None:
    """Print a check: the tasks, the matrices, the transports, and what is wrong."""
    console.print(_tasks(result))
    names = [task.name for task in result.tasks]
    if len(names) <= _WIDEST:
        console.print(_matrix(result, names, "Round trip of a small read, us, median", _latency))
        console.print(_matrix(result, names, "Bandwidth from row to column, GB/s", _bandwidth))
    else:
        console.print(_summary(result, names))
    for line in transports(result):
        console.print(line, soft_wrap=True)
    found, remarks = problems(result), notes(result)
    for problem in found:
        console.print(f"WRONG: {problem}", soft_wrap=True)
    for remark in remarks:
        console.print(f"note: {remark}", soft_wrap=True)
    if not found:
        count = len(result.tasks)
        console.print(f"All {count} tasks reach each other.")


def transports(result: Result) -> list[str]:
    """Return a line for each transport and reason, with the pairs that it connects."""
    by_choice: dict[str, list[str]] = {}
    for pair in result.pairs.values():
        if pair.choice:
            by_choice.setdefault(pair.choice, []).append(f"{pair.source}-{pair.target}")
    total = sum(map(len, by_choice.values()))
    return [
        f"{choice}: {'all' if len(pairs) == total == len(result.pairs) else _some(pairs)}"
        for choice, pairs in by_choice.items()
    ]


def _some(pairs: Sequence[str]) -> str:
    shown = ", ".join(pairs[:_WIDEST])
    return shown if len(pairs) <= _WIDEST else f"{shown} and {len(pairs) - _WIDEST} more"


def _tasks(result: Result) -> Table:
    table = Table(title="Tasks")
    for column in ("Task", "Address", "Host", "Version", "TensorFlow", "CPUs", "Load", "RDMA"):
        table.add_column(column, overflow="fold")
    for task in result.tasks:
        facts = result.facts.get(task.name)
        if facts is None:
            kind = result.missing.get(task.name, ("lost", ""))[0]
            table.add_row(task.name, task.address, f"- {KINDS[kind].short}")
            continue
        table.add_row(
            task.name,
            task.address,
            facts["host"],
            facts["version"],
            facts["tensorflow"] or "-",
            str(facts["cpus"]),
            f"{facts['load']:g}",
            ", ".join(facts["devices"]) or "-",
        )
    return table


def _matrix(result: Result, names: Sequence[str], title: str, cell: Callable[[Pair], str]) -> Table:
    table = Table("from \\ to", *names, title=title)
    for source in names:
        cells = []
        for target in names:
            pair = result.pairs.get((source, target))
            cells.append("" if source == target else "-" if pair is None else cell(pair))
        table.add_row(source, *cells)
    return table


def _latency(pair: Pair) -> str:
    return _figure(pair, pair.latency_us)


def _bandwidth(pair: Pair) -> str:
    return _figure(pair, pair.gb_per_s)


def _figure(pair: Pair, value: float | None) -> str:
    if pair.kind:
        return KINDS[pair.kind].short
    if value is None:
        return "-"
    return f"{format_figure(value)} {pair.transport}"


def format_figure(value: float) -> str:
    """Return three digits of a number."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _summary(result: Result, names: Sequence[str]) -> Table:
    columns = ("Task", "Reaches", "Slowest round trip, us", "Least GB/s out", "Least GB/s in")
    table = Table(*columns, title=f"{len(names)} tasks; --json and --plot have all pairs")
    for name in names:
        outgoing = [pair for pair in result.pairs.values() if pair.source == name]
        incoming = [pair for pair in result.pairs.values() if pair.target == name]
        latencies = [pair.latency_us for pair in outgoing if pair.latency_us is not None]
        table.add_row(
            name,
            f"{sum(not pair.kind for pair in outgoing)} of {len(names) - 1}",
            format_figure(max(latencies)) if latencies else "-",
            *(
                format_figure(min(rates)) if rates else "-"
                for rates in (
                    [p.gb_per_s for p in pairs if p.gb_per_s is not None]
                    for pairs in (outgoing, incoming)
                )
            ),
        )
    return table
