"""Shows rows: a table, a JSON file, a plot."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tf_rdmabatch.bench.cases import PEER_PATTERNS
from tf_rdmabatch.cli import CommandError

Row = Mapping[str, Any]


def format_bytes(count: int) -> str:
    """Return 65536 as ``64 KiB``."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size and count % size == 0:
            return f"{count // size} {unit}"
    return f"{count} B"


def format_number(value: float | None) -> str:
    """Return 1234567.0 as ``1.23M``, None as ``-``."""
    if value is None:
        return "-"
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}" if value >= 0.001 or value == 0 else f"{value:.1e}"


def print_table(rows: Sequence[Row], console: Console) -> None:
    """Print rows grouped by transport and pattern; ± is half the spread of the rate."""
    table = Table(header_style="bold")
    for name in ("transport", "pattern", "size", "peers", "confirm"):
        table.add_column(name, justify="right" if name in {"size", "peers"} else "left")
    columns = (
        ("messages/s", "messages_per_s"),
        ("±%", ""),
        ("GB/s", "gb_per_s"),
        ("p50 us", "p50_us"),
        ("p99 us", "p99_us"),
        ("CPU s/GB", "cpu_s_per_gb"),
        ("CPU s/M msg", "cpu_s_per_million_messages"),
        ("doorbells", "doorbells_per_message"),
        ("completions", "completions_per_message"),
        ("acks/msg", "acks_per_message"),
        ("mem/peer", "memory_bytes_per_peer"),
        ("fair", "fairness"),
    )
    for title, _ in columns:
        table.add_column(title, justify="right")
    last: tuple[str, str] | None = None
    for row in sorted(rows, key=lambda r: (r["transport"], r["pattern"], r["bytes"], r["peers"])):
        group = (row["transport"], row["pattern"])
        if last is not None and group != last:
            table.add_section()
        last = group
        spread = row["spread"]["messages_per_s"]
        table.add_row(
            row["transport"],
            row["pattern"],
            format_bytes(row["bytes"]),
            str(row["peers"]),
            row["confirm"],
            *(
                (
                    format_number(None if spread is None else 50 * spread)
                    if not key
                    else format_number(row[key])
                )
                for _, key in columns
            ),
        )
    console.print(table)
    late = sum(row["late_runs"] for row in rows)
    if late:
        console.print(f"{late} runs were taken again: this machine was busy, so mind the spread")
    for row in rows:
        if row["pattern"] == "idle":
            used = f"{1e3 * row['cpu_s']:.1f} ms of CPU time in {row['seconds']:.1f} s"
            console.print(
                f"{row['transport']} idle {row['confirm']}: {used}, both engines together"
            )


def write_json(rows: Sequence[Row], path: Path) -> None:
    """Write the rows as a list."""
    try:
        path.write_text(json.dumps(rows, indent=1) + "\n")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from error


def require_matplotlib() -> None:
    """Raise `CommandError` where a plot cannot be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise CommandError("--plot needs matplotlib: pip install 'tf-rdmabatch[plots]'", status=2)


def write_plot(rows: Sequence[Row], path: Path) -> None:
    """Draw messages/s, GB/s, latency and CPU per message over the size of the messages."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    panels = (
        ("messages/s", "messages_per_s"),
        ("GB/s", "gb_per_s"),
        ("p50 of a lone message or a round, us", "p50_us"),
        ("CPU s per million messages", "cpu_s_per_million_messages"),
    )
    lines: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        key: tuple[str, ...] = (row["transport"], row["pattern"], row["confirm"])
        if row["pattern"] == "memcpy":
            key = ("memcpy",)
        elif row["pattern"] in PEER_PATTERNS:
            key = (*key, f"{row['peers']} peers")
        lines.setdefault(key, []).append(row)
    figure = Figure(figsize=(14, 10), layout="constrained")
    for axes, (title, name) in zip(figure.subplots(2, 2).flat, panels, strict=True):
        for key, points in lines.items():
            drawn = sorted((p["bytes"], p[name]) for p in points if p[name])
            style = "--" if "each" in key else ":" if "memcpy" in key else "-"
            if drawn:
                axes.plot(*zip(*drawn, strict=True), style, marker="o", label=" ".join(key))
        axes.set(title=title, xlabel="bytes", xscale="log", yscale="log")
        axes.grid(visible=True, which="both", alpha=0.3)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
    save_figure(figure, path)


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure of matplotlib."""
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot write {path}: {error}") from error
