"""What a job's tasks did and how long it took them: plain numbers out of counters and times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

_COUNTERS = ("messages_sent", "messages_received", "doorbells", "rounds")
_WORKER = ("pull", "compute", "push", "wait", "idle")
_SERVER = ("publish", "collect", "update", "wait", "idle")


def task_stats(
    job: str, values: Mapping[str, int], transports: Mapping[str, str]
) -> dict[str, Any]:
    """Return what `ParameterServerStrategy.stats` says of a task.

    Parameters
    ----------
    job
        ``"worker"`` or ``"ps"``.
    values
        What `tf_rdmabatch.ops.stats` returned there.
    transports
        What `tf_rdmabatch.ops.transports` returned there.
    """
    stats: dict[str, Any] = {
        # Pulls are reads of the server's memory, with or without a copy, and no messages.
        "bytes_sent": values["bytes_sent"] + values["bytes_written"],
        "bytes_received": values["bytes_received"] + values["bytes_read"] + values["bytes_viewed"],
        "messages": values["messages_sent"] + values["messages_received"],
    }
    stats |= {name: values[name] for name in _COUNTERS}
    if job == "worker":
        stats["micro_steps"] = values["micro_steps"]
        stats["block_bytes"] = values["tuned_block_bytes"]
    phases = _WORKER if job == "worker" else _SERVER
    stats |= {f"{phase}_s": values[f"{phase}_ns"] / 1e9 for phase in phases}
    return stats | {"transports": {peer: how.split()[0] for peer, how in transports.items()}}


def step_seconds(rounds: npt.NDArray[np.void]) -> npt.NDArray[np.float64]:
    """Return how long a micro-step took a worker in each round.

    Parameters
    ----------
    rounds
        Of `ParameterServerStrategy.round_times`, shape (rounds,).

    Returns
    -------
    np.ndarray
        Seconds, shape (rounds,), without waits. NaN where nothing was pulled, no micro-step ran, or
        the times are not in order.
    """
    computing = rounds["compute_end"] - rounds["pull_end"]
    known = (rounds["pull_end"] > 0) & (rounds["micro_steps"] > 0) & (computing > 0)
    steps = np.where(known, rounds["micro_steps"], 1)
    return np.where(known, computing / steps / 1e9, np.nan)


def communication_seconds(rounds: npt.NDArray[np.void]) -> npt.NDArray[np.float64]:
    """Return how long a worker's pulls and pushes took in each round, their waits excluded.

    Parameters and result are as in `step_seconds`; NaN where there were none.
    """
    pulling = rounds["pull_end"] - rounds["pull_begin"] - rounds["pull_wait"]
    computed = np.maximum(rounds["compute_end"], rounds["push_begin"])
    pushing = rounds["push_end"] - computed - rounds["push_wait"]
    known = (rounds["pull_end"] > 0) & (rounds["push_end"] > 0)
    return np.where(known, (pulling + pushing) / 1e9, np.nan)


def wait_seconds(
    rounds: npt.NDArray[np.void], before: npt.NDArray[np.void]
) -> npt.NDArray[np.float64]:
    """Return how long each worker did nothing, from the end of its last round to that of this one.

    It was blocked by others, between the rounds or in this one, or waited for the chief.

    Parameters
    ----------
    rounds
        A round's reports, of `ParameterServerStrategy.round_reports`, shape (workers,).
    before
        Those of the round before.

    Returns
    -------
    np.ndarray
        Seconds, shape (workers,); NaN where one of the two is not known.
    """
    ended = np.maximum.reduce([before[end] for end in ("pull_end", "compute_end", "push_end")])
    idle = rounds["pull_begin"] - ended
    known = (rounds["pull_begin"] > 0) & (ended > 0) & (idle >= 0)
    return np.where(known, (idle + rounds["pull_wait"] + rounds["push_wait"]) / 1e9, np.nan)


def round_seconds(rounds: npt.NDArray[np.void], before: npt.NDArray[np.void]) -> float | None:
    """Return how long it was from one round's first pulls to the next one's; None: not known.

    Parameters are as in `wait_seconds`; it is the median over the workers, each by its own clock.
    """
    known = (rounds["pull_begin"] > before["pull_begin"]) & (before["pull_begin"] > 0)
    if not known.any():
        return None
    return float(np.median((rounds["pull_begin"] - before["pull_begin"])[known])) / 1e9
