"""The allotment of a round's micro-steps that makes the slowest worker as fast as can be.

No TensorFlow here. A round of worker w that runs k micro-steps is predicted to take
``communication[w] + k * step[w]`` seconds, and one that runs none, nothing.
"""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from tf_rdmabatch.strategy.time_estimate import Floats

Integers = npt.NDArray[np.int64]

# Steps that are allotted one by one.
_FEW = 16


def predicted_times(allotment: Integers, step: Floats, communication: Floats) -> Floats:
    """Return the predicted seconds of each worker's round.

    Parameters
    ----------
    allotment
        Micro-steps of each worker, shape (workers,).
    step, communication
        Seconds a micro-step takes, and those of a worker's own pulls and pushes, shape (workers,).
    """
    times: Floats = np.where(allotment > 0, communication + allotment * step, 0.0)
    return times


def best_allotment(
    num_steps: int,
    step: Floats,
    communication: Floats,
    minimum: Integers,
    current: Integers | None = None,
) -> Integers:
    """Return the allotment whose slowest worker is predicted to be the fastest possible.

    The steps in the order of the times at which their workers would have done them form one sorted
    list; the best allotment is its beginning. A bisection over time finds most of it for all
    workers at once, a heap the rest: at most O(K log W) for K steps and W workers.

    Parameters
    ----------
    num_steps
        K, what the allotment sums to.
    step, communication
        As in `predicted_times`; steps are positive, infinity is a worker that gets its minimum.
    minimum
        What each worker gets in any case, shape (workers,).
    current
        Preferred among equals, so that nothing moves without a gain.

    Raises
    ------
    ValueError
        The minimum is more than there are steps, or nobody can run the rest.
    """
    left = num_steps - int(minimum.sum())
    if left < 0:
        raise ValueError(
            f"{num_steps} micro-steps are fewer than the minimum of {int(minimum.sum())}: lower "
            "the minimum, or raise num_virtual_replicas"
        )
    able = np.isfinite(step)
    if left > 0 and not able.any():
        raise ValueError("no worker is left to run the micro-steps")
    allotment = minimum.astype(np.int64)
    if left == 0:
        return allotment
    allotment[able] = _fill(
        num_steps - int(minimum[~able].sum()), step[able], communication[able], minimum[able]
    )
    rest = num_steps - int(allotment.sum())
    wanted = current if current is not None else allotment
    # Who is not among the first `rest` has no part in the rest.
    following = np.where(able, communication + (allotment + 1) * step, np.inf)
    last = np.partition(following, min(rest, len(following)) - 1)[min(rest, len(following)) - 1]
    workers = np.flatnonzero(able & (following <= last))
    heap = [_next_step(w, allotment, step, communication, wanted) for w in workers.tolist()]
    heapq.heapify(heap)
    for _ in range(rest):
        worker = heap[0][2]
        allotment[worker] += 1
        heapq.heapreplace(heap, _next_step(worker, allotment, step, communication, wanted))
    return allotment


def _next_step(
    worker: int, allotment: Integers, step: Floats, communication: Floats, wanted: Integers
) -> tuple[float, bool, int]:
    steps = int(allotment[worker]) + 1
    done = float(communication[worker] + steps * step[worker])
    return done, steps > int(wanted[worker]), worker


def _fill(num_steps: int, step: Floats, communication: Floats, minimum: Integers) -> Integers:
    """Return a part of the best allotment of `num_steps`, mostly all but a few of the steps."""

    def done_by(time: float) -> Integers:
        steps = np.floor((time - communication) / step)
        return np.maximum(minimum, np.minimum(steps, num_steps).astype(np.int64))

    low, high = 0.0, float((communication + num_steps * step).min())
    found = done_by(low)
    for _ in range(64):
        middle = (low + high) / 2
        # What is left costs less one by one.
        if middle in (low, high) or num_steps - int(found.sum()) <= _FEW:
            break
        tried = done_by(middle)
        if int(tried.sum()) < num_steps:
            low, found = middle, tried
        else:
            high = middle
    return found
