"""The picture of what `StepReallocation` saw and did."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tf_rdmabatch.strategy.step_allocator import Decision

try:
    from matplotlib.figure import Figure
except ImportError as error:
    raise ImportError(
        "the picture of a StepReallocation needs matplotlib: pip install matplotlib, or leave out "
        "plot="
    ) from error


def draw(history: npt.NDArray[np.void], decisions: Sequence[Decision], path: Path) -> None:
    """Draw allotment, step time and waiting of each worker over the rounds.

    Parameters
    ----------
    history
        Of `StepReallocation.history`.
    decisions
        Moves, which become vertical lines.
    path
        Of the picture; its ending says which format.
    """
    figure = Figure(figsize=(10, 7), layout="constrained")
    panels = (
        ("allotment", "micro-steps a round", 1.0),
        ("step_seconds", "milliseconds a micro-step", 1e3),
        ("wait_seconds", "milliseconds waited for others", 1e3),
    )
    axes = figure.subplots(len(panels), 1, sharex=True)
    rounds = history["round"]
    for axis, (field, label, scale) in zip(axes, panels, strict=True):
        for worker in range(history["allotment"].shape[1]):
            axis.plot(
                rounds,
                history[field][:, worker] * scale,
                drawstyle="steps-post",
                linewidth=1.2,
                label=f"worker:{worker}",
            )
        # Decisions count the rounds that were observed.
        for decision in decisions:
            if decision.round <= len(rounds):
                axis.axvline(rounds[decision.round - 1], color="#999999", linewidth=0.6, zorder=0)
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_title(f"{len(decisions)} moves of steps (grey lines) in {len(rounds)} rounds")
    axes[0].legend(ncols=8, frameon=False, fontsize=8)
    axes[-1].set_xlabel("round")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
