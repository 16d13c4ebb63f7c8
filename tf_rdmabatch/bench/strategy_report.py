"""Shows the rows of ``tf-rdmabatch bench strategy``: a table, a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tf_rdmabatch.bench.report import Row, format_number, save_figure

# Title, key, and whether more is better.
_COMPARED = (
    ("steps/s", "steps_per_s", True),
    ("GB/s", "gb_per_s", True),
    ("CPU s/GB", "cpu_s_per_gb", False),
    ("CPU ms/step", "cpu_s_per_step", False),
)

# Title, key, factor.
_PARTS = (
    ("round ms", "round_s", 1e3),
    ("compute alone ms", "compute_s", 1e3),
    ("communication alone ms", "communication_s", 1e3),
    ("of it hidden %", "hidden_share", 1e2),
    ("of what can be %", "hidden_of_possible", 1e2),
)
_GRAPH = (
    ("trace s", "trace_s", 1),
    ("trace CPU s", "trace_cpu_s", 1),
    ("nodes", "graph_nodes", 1),
    ("functions", "graph_functions", 1),
)


def print_tables(rows: Sequence[Row], console: Console) -> None:
    """Print what was measured: steps, the parts of networks' rounds, graphs."""
    measured = [row for row in rows if row["steps_per_s"] is not None]
    if measured:
        _print_steps(measured, console)
    if networks := [row for row in measured if row["round_s"] is not None]:
        _print_columns(networks, ("work", "system"), _PARTS, console)
    if graphs := [row for row in rows if row["trace_s"] is not None]:
        _print_columns(graphs, ("work", "workers"), _GRAPH, console)


def _print_columns(
    rows: Sequence[Row],
    names: Sequence[str],
    columns: Sequence[tuple[str, str, float]],
    console: Console,
) -> None:
    table = Table(*names, header_style="bold")
    for title, _, _ in columns:
        table.add_column(title, justify="right")
    for row in rows:
        figures = (format_number(scale * row[key]) for _, key, scale in columns)
        table.add_row(*(str(row[name]) for name in names), *figures)
    console.print(table)


def _print_steps(rows: Sequence[Row], console: Console) -> None:
    """Print rows grouped by work; ± is half the spread of the rate."""
    table = Table(header_style="bold")
    table.add_column("work")
    table.add_column("system")
    for title in ("steps/s", "±%", "GB/s", "CPU s/GB", "CPU ms/step", "faster", "CPU", "others"):
        table.add_column(title, justify="right")
    table.add_column("quiet", justify="right")
    for work in dict.fromkeys(row["work"] for row in rows):
        table.add_section()
        group = {row["system"]: row for row in rows if row["work"] == work}
        for row in group.values():
            stock = group.get("stock") if row["system"] != "stock" else None
            table.add_row(
                work,
                row["system"],
                format_number(row["steps_per_s"]),
                format_number(50 * row["spread"]["steps_per_s"]),
                format_number(row["gb_per_s"]),
                format_number(row["cpu_s_per_gb"]),
                format_number(1e3 * row["cpu_s_per_step"]),
                _ratio(row, stock, "steps_per_s"),
                _ratio(row, stock, "cpu_s_per_step"),
                f"{row['other_load']:.2f}",
                f"{row['quiet_runs']}/{row['runs']}",
            )
    console.print(table)
    noisy = sorted({row["work"] for row in rows if row["quiet_runs"] == 0})
    if noisy:
        console.print(
            f"no run was quiet for {', '.join(noisy)}: other processes used this machine, so mind "
            "the spread"
        )


def _ratio(row: Row, stock: Row | None, key: str) -> str:
    """Return how many times stock's figure a figure is."""
    return f"{row[key] / stock[key]:.2f}x" if stock and stock[key] else ""


def write_plot(rows: Sequence[Row], path: Path) -> None:
    """Draw each figure as bars, a group for each work."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    rows = [row for row in rows if row["steps_per_s"] is not None]
    works = list(dict.fromkeys(row["work"] for row in rows))
    systems = list(dict.fromkeys(row["system"] for row in rows))
    width = 0.8 / max(1, len(systems))
    figure = Figure(figsize=(14, 9), layout="constrained")
    for axes, (title, key, more) in zip(figure.subplots(2, 2).flat, _COMPARED, strict=True):
        for i, system in enumerate(systems):
            values = {row["work"]: row[key] for row in rows if row["system"] == system}
            places = [works.index(work) + (i - (len(systems) - 1) / 2) * width for work in values]
            scale = 1e3 if title == "CPU ms/step" else 1
            bars = axes.bar(places, [scale * v for v in values.values()], width, label=system)
            axes.bar_label(bars, fmt="%.3g", fontsize="small")
        axes.set(title=f"{title} ({'more' if more else 'less'} is better)", yscale="log")
        axes.set_xticks(range(len(works)), works)
        axes.grid(visible=True, axis="y", alpha=0.3)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=max(1, len(systems)))
    save_figure(figure, path)
