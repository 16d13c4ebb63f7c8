"""The picture of a check: a heat map of latencies and one of bandwidths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tf_rdmabatch.bench.report import save_figure
from tf_rdmabatch.check.reach import KINDS
from tf_rdmabatch.check.report import format_figure
from tf_rdmabatch.check.result import Pair, Result

# With more tasks numbers do not fit into the cells.
_NUMBERS = 16


def write_plot(result: Result, path: Path) -> None:
    """Draw the pairs of a check; those without a connection are grey and say why.

    Raises
    ------
    CommandError
        The file cannot be written.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415

    count = len(result.tasks)
    side = max(4.5, 0.42 * count + 2.5)
    figure = Figure(figsize=(2 * side, side + 0.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    _heat_map(left, result, "latency_us", "Round trip of a small read, us", "viridis_r")
    _heat_map(right, result, "gb_per_s", "Bandwidth from row to column, GB/s", "viridis")
    save_figure(figure, path)


def _heat_map(axes: Any, result: Result, field: str, title: str, colours: str) -> None:
    from matplotlib.colors import LogNorm  # noqa: PLC0415

    names = [task.name for task in result.tasks]
    values = np.full((len(names), len(names)), np.nan)
    for row, source in enumerate(names):
        for column, target in enumerate(names):
            pair = result.pairs.get((source, target))
            figure = getattr(pair, field, None)
            if figure is not None:
                values[row, column] = figure
            if row != column and len(names) <= _NUMBERS:
                axes.annotate(
                    _label(pair, figure),
                    (column, row),
                    ha="center",
                    va="center",
                    fontsize=7,
                    bbox={"facecolor": "white", "alpha": 0.6, "linewidth": 0, "pad": 1},
                )
    known = values[np.isfinite(values)]
    axes.set_facecolor("#bbbbbb")
    if known.size:
        # At least a decade, or what differs by nothing would look as if it did.
        middle = np.sqrt(known.min() * known.max())
        norm = LogNorm(min(known.min(), middle / 3.2), max(known.max(), middle * 3.2))
        image = axes.imshow(np.ma.masked_invalid(values), norm=norm, cmap=colours)
        axes.figure.colorbar(image, ax=axes, shrink=0.8)
    else:
        axes.set(xlim=(-0.5, len(names) - 0.5), ylim=(len(names) - 0.5, -0.5), aspect="equal")
    axes.set_title(title, fontsize=10)
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)


def _label(pair: Pair | None, figure: float | None) -> str:
    if pair is None or (figure is None and not pair.kind):
        return "-"
    return (
        KINDS[pair.kind].short if figure is None else f"{format_figure(figure)}\n{pair.transport}"
    )
