"""A picture of rounds: what each task did when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import Patch

# What a bar stands for: its colour, and the label of the legend.
COLORS = {
    "pull": ("#3b7dd8", "pull variables"),
    "compute": ("#f2a541", "compute gradients"),
    "push": ("#3aa66f", "push gradients"),
    "wait": ("#d9d9d9", "wait for others or the chief"),
    "publish": ("#d62728", "publish variables"),
    "update": ("#9467bd", "collect and update"),
}
Bar = tuple[str, float, float]


def worker_bars(row: Any) -> Iterator[Bar]:
    """Yield what a worker did in a round: kind, begin and end in nanoseconds."""
    waited = row["pull_begin"] + row["pull_wait"]
    yield "wait", row["pull_begin"], waited
    yield "pull", waited, row["pull_end"]
    begin = row["pull_end"]
    for end in row["micro_step_end"][: row["micro_steps"]]:
        yield "compute", begin, end
        begin = end
    yield "push", row["compute_end"], row["push_end"] - row["push_wait"]
    yield "wait", row["push_end"] - row["push_wait"], row["push_end"]


def server_bars(row: Any) -> Iterator[Bar]:
    """Yield what a server did in a round."""
    yield "publish", row["publish_begin"], row["publish_end"]
    waited = row["collect_begin"] + row["collect_wait"]
    yield "wait", row["collect_begin"], waited
    yield "update", waited, max(row["update_end"], row["collect_end"])


def with_gaps(rounds: Sequence[Sequence[Bar]]) -> Iterator[Bar]:
    """Yield the bars of all rounds, and waits between the rounds."""
    end_of_last = 0.0
    for bars in rounds:
        there = [bar for bar in bars if bar[2] > bar[1] > 0]
        if end_of_last and there:
            yield "wait", end_of_last, max(end_of_last, there[0][1])
        yield from there
        end_of_last = there[-1][2] if there else end_of_last


def draw(jobs: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Draw all rounds of each task of each job, below each other.

    Parameters
    ----------
    jobs
        By the title, `ParameterServerStrategy.round_times` of tasks on one host.
    path
        Of the PNG file.
    """
    height = sum(1.2 + 0.7 * len(times) for times in jobs.values())
    figure, panels = plt.subplots(
        len(jobs),
        figsize=(12, 0.8 + height),
        layout="constrained",
        dpi=130,
        sharex=True,
        squeeze=False,
        height_ratios=[1 + len(times) for times in jobs.values()],
    )
    spent: dict[str, list[str]] = {kind: [] for kind in COLORS}
    for axes, (title, times) in zip(panels[:, 0], jobs.items(), strict=True):
        for kind, milliseconds in _draw_job(axes, times).items():
            spent[kind].append(f"{milliseconds:.2f}")
        axes.set_title(title, loc="left")
    panels[-1, 0].set_xlabel("milliseconds")
    figure.legend(
        handles=[
            Patch(color=color, label=f"{label}: {' / '.join(spent[kind])} ms a step")
            for kind, (color, label) in COLORS.items()
        ],
        loc="outside lower center",
        ncols=3,
        frameon=False,
    )
    figure.savefig(path)
    plt.close(figure)


def _draw_job(axes: Any, times: Mapping[str, Any]) -> dict[str, float]:
    """Draw a job's rounds; return the milliseconds of each kind that a task of its sort spent."""
    servers = sorted((task for task in times if task.startswith("ps")), reverse=True)
    workers = sorted((task for task in times if task.startswith("worker")), reverse=True)
    # A round begins with its first pull.
    begins = np.min([times[worker]["pull_begin"] for worker in workers], axis=0)
    spent: dict[str, float] = dict.fromkeys(COLORS, 0.0)
    for y, task in enumerate([*servers, *workers]):
        rows = times[task]
        rows = rows[np.isin(rows["version"], times[workers[0]]["version"])]
        bars_of = worker_bars if task in workers else server_bars
        for kind, begin, end in with_gaps([list(bars_of(row)) for row in rows]):
            spent[kind] += (end - begin) / 1e6 / len(rows)
            axes.barh(
                y,
                (end - begin) / 1e6,
                left=(begin - begins[0]) / 1e6,
                height=0.62,
                color=COLORS[kind][0],
                edgecolor="white",
                linewidth=0.3,
            )
    for number, begin in enumerate(begins, 1):
        at = (begin - begins[0]) / 1e6
        axes.axvline(at, color="#555555", linewidth=0.8, linestyle=(0, (4, 3)))
        axes.annotate(
            f" step {number}", (at, 1), xycoords=("data", "axes fraction"), va="top", fontsize=9
        )
    axes.set_xlim(left=0)
    axes.set_ylim(-0.5, len(times) - 0.2)
    axes.set_yticks(range(len(times)), [*servers, *workers])
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    counts = {"wait": len(times), "publish": len(servers), "update": len(servers)}
    return {kind: value / counts.get(kind, len(workers)) for kind, value in spent.items()}
