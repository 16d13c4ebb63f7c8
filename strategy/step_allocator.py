"""Which worker runs how many micro-steps of a round, from the times that were measured.

No TensorFlow here: plain numbers in, an allotment out. A round of worker w that runs k micro-steps
is predicted to take ``communication[w] + k * step[w]`` seconds, and one that runs none, nothing.
`best_allotment` makes the slowest worker's round as short as it can be. `StepAllocator` estimates
the times from round to round, and moves steps where that gains something.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tf_rdmabatch.strategy.time_estimate import Floats, TimeEstimate, reported

Integers = npt.NDArray[np.int64]

# Rounds of a worker before its times count: the first one also traces and connects.
_WARM_UP = 3
# Rounds without a word of a worker after which the others no longer wait for its first times.
_PATIENCE = 10
# Steps that are allotted one by one.
_FEW = 16
# Rounds whose median is what a round takes besides its slowest worker's time.
_ROUNDS = 9
# Moves that the noise of the estimates may have made up are not made: in standard errors.
_CONFIDENCE = 1.0


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


@dataclass
class Decision:
    """One move of steps: what it was made of, what it promised, and what came true.

    Times are seconds. `came_true` is the slowest worker's round, measured, as the mean of the
    rounds since (at most three); NaN before the first.
    """

    round: int
    step_seconds: tuple[float, ...]  # per worker, as estimated
    communication_seconds: tuple[float, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    predicted_before: float  # the slowest worker's round
    predicted_after: float
    came_true: float = math.nan
    rounds_since: int = 0

    @property
    def moved(self) -> int:
        """How many steps changed their worker."""
        return sum(abs(a - b) for a, b in zip(self.before, self.after, strict=True)) // 2

    def __str__(self) -> str:
        gain = 1 - self.predicted_after / self.predicted_before
        return (
            f"round {self.round}: {list(self.before)} -> {list(self.after)}, slowest worker "
            f"{self.predicted_before:.4g} s -> {self.predicted_after:.4g} s ({gain:.0%} less)"
        )


class StepAllocator:
    """Moves micro-steps from stragglers to faster workers, from round to round.

    Parameters
    ----------
    num_steps
        K, the micro-steps of a round: the strategy's virtual replicas.
    num_workers
        W.
    minimum
        Micro-steps that each worker gets at least. With 0, a worker that has none is given one
        every `probe_rounds` rounds, or nobody would notice that it has recovered.
    threshold
        The predicted gain, as a part of a round, below which nothing moves.
    probe_rounds
        See `minimum`.

    Raises
    ------
    ValueError
        A number is out of its range, or `num_steps` is less than the minimum of all workers.
    """

    def __init__(
        self,
        num_steps: int,
        num_workers: int,
        *,
        minimum: int = 1,
        threshold: float = 0.05,
        probe_rounds: int = 20,
    ) -> None:
        if num_steps < 1 or num_workers < 1 or minimum < 0 or probe_rounds < 1:
            raise ValueError("num_steps, num_workers and probe_rounds are at least 1, minimum 0")
        if not 0 <= threshold < 1:
            raise ValueError(f"the threshold {threshold} is not from 0 to less than 1")
        self._num_steps = num_steps
        self._minimum = np.full(num_workers, minimum, np.int64)
        self._active = np.ones(num_workers, np.bool_)
        self._threshold = threshold
        self._probe_rounds = probe_rounds
        self._step = TimeEstimate(num_workers)
        self._communication = TimeEstimate(num_workers)
        self._idle = np.zeros(num_workers, np.int64)  # rounds without a step
        self._silent = np.zeros(num_workers, np.int64)  # rounds with steps, but no report
        self._round = 0
        self._overhead: deque[float] = deque(maxlen=_ROUNDS)
        self._allotment = best_allotment(
            num_steps, np.ones(num_workers), np.zeros(num_workers), self._minimum
        )
        self.decisions: list[Decision] = []

    @property
    def allotment(self) -> tuple[int, ...]:
        """The micro-steps of each worker in the next round."""
        return tuple(self._allotment.tolist())

    def adopt(self, allotment: Sequence[int]) -> None:
        """Go on from an allotment that somebody else has set.

        Raises
        ------
        ValueError
            It does not have a number for each worker, or not the sum.
        """
        values = np.asarray(allotment, np.int64)
        if values.shape != self._allotment.shape or (values < 0).any():
            raise ValueError(f"{list(allotment)} is not a number for each of the workers")
        if int(values.sum()) != self._num_steps:
            raise ValueError(
                f"{list(allotment)} sums to {int(values.sum())}, not to the {self._num_steps} "
                "micro-steps of a round"
            )
        self._allotment = values

    def leave(self, worker: int) -> None:
        """Give a worker's steps to the others at once: it is gone.

        Raises
        ------
        ValueError
            It was the last one.
        """
        active = self._active.copy()
        active[worker] = False
        if not active.any():
            raise ValueError("the last worker cannot leave")
        self._active = active
        self._move(self._best(self._times()), self._times())

    def join(self, worker: int) -> None:
        """Take a worker back; it gets steps once its speed is known, and its minimum now."""
        if self._active[worker]:
            return
        self._active[worker] = True
        self._step.forget(worker)
        self._communication.forget(worker)
        self._move(self._best(self._times()), self._times())

    def observe(
        self,
        step_seconds: Sequence[float] | Floats,
        communication_seconds: Sequence[float] | Floats | None = None,
        round_seconds: float | None = None,
    ) -> Decision | None:
        """Take the times of a round that ran with `allotment`; return the move, if there is one.

        Parameters
        ----------
        step_seconds
            What a micro-step took each worker, waiting excluded, shape (workers,). NaN, and what
            no clock that works can say (less than 1 ns, or more than 1e6 s), is no report: the
            worker's estimate stays as it was. One that never reports is taken for a median one.
        communication_seconds
            What a worker's own pulls and pushes took, not those it waited for, shape (workers,).
        round_seconds
            The whole round, with what no allotment changes: gains are compared with it. None: the
            slowest worker's predicted round.

        Raises
        ------
        ValueError
            There is not a time for each worker.
        """
        step = np.asarray(step_seconds, np.float64)
        if step.shape != self._allotment.shape:
            raise ValueError(f"{step.size} times for {self._allotment.size} workers")
        communication = (
            np.full(step.shape, np.nan)
            if communication_seconds is None
            else np.asarray(communication_seconds, np.float64)
        )
        if communication.shape != step.shape:
            raise ValueError(f"{communication.size} times of communication for {step.size} workers")
        step, communication = reported(step), reported(communication)
        self._round += 1
        slowest = float(predicted_times(self._allotment, step, np.nan_to_num(communication)).max())
        if round_seconds is not None and 0 <= round_seconds - slowest < math.inf:
            self._overhead.append(round_seconds - slowest)
        self._report_outcome(slowest)
        self._step.observe(step)
        self._communication.observe(communication)
        working = self._allotment > 0
        self._idle = np.where(working, 0, self._idle + 1)
        self._silent = np.where(working & np.isnan(step), self._silent + 1, 0)
        return self._decide()

    def _report_outcome(self, slowest: float) -> None:
        if not self.decisions or self.decisions[-1].rounds_since == 3 or math.isnan(slowest):
            return
        last = self.decisions[-1]
        total = last.came_true * last.rounds_since if last.rounds_since else 0.0
        last.rounds_since += 1
        last.came_true = (total + slowest) / last.rounds_since

    def _times(self) -> tuple[Floats, Floats]:
        """Return the estimated times; a worker of which nothing is known is like the median one."""
        step = self._step.seconds
        known = np.isfinite(step) & self._active
        middle = float(np.median(step[known])) if known.any() else 1.0
        step = np.where(np.isfinite(step), step, middle)
        step = np.where(self._active, step, np.inf)
        return step, np.nan_to_num(self._communication.seconds)

    def _best(self, times: tuple[Floats, Floats]) -> Integers:
        step, communication = times
        minimum = np.where(self._active, self._minimum, 0)
        if int(minimum.sum()) > self._num_steps:
            minimum = np.zeros_like(minimum)
        return best_allotment(self._num_steps, step, communication, minimum, self._allotment)

    def _decide(self) -> Decision | None:
        working = self._active & (self._allotment > 0)
        unknown = (self._step.rounds < _WARM_UP) & (self._silent < _PATIENCE)
        if (working & unknown).any():
            return None
        times = self._times()
        probe = np.flatnonzero(self._active & (self._idle >= self._probe_rounds))
        if probe.size:
            return self._probe(int(probe[0]), times)
        best = self._best(times)
        if (best == self._allotment).all():
            return None
        now = self._predict(self._allotment, times)
        then = self._predict(best, times)
        slowest, next_slowest = int(now.argmax()), int(then.argmax())
        error = self._step.relative_error
        margin = _CONFIDENCE * math.hypot(error[slowest], error[next_slowest])
        before, after = float(now.max()), float(then.max())
        overhead = float(np.median(self._overhead)) if self._overhead else 0.0
        gain = (before - after) / (before + overhead)
        if gain <= self._threshold + margin:
            return None
        return self._move(best, times)

    def _probe(self, worker: int, times: tuple[Floats, Floats]) -> Decision:
        """Give one step to a worker that has none, from the one that is predicted to be last."""
        after = self._allotment.copy()
        after[int(self._predict(after, times).argmax())] -= 1
        after[worker] += 1
        self._step.forget(worker)
        self._step.rounds[worker] = _WARM_UP
        return self._move(after, times)

    @staticmethod
    def _predict(allotment: Integers, times: tuple[Floats, Floats]) -> Floats:
        step, communication = times
        return predicted_times(allotment, np.where(np.isfinite(step), step, 0.0), communication)

    def _move(self, after: Integers, times: tuple[Floats, Floats]) -> Decision:
        step, communication = times
        decision = Decision(
            self._round,
            tuple(step.tolist()),
            tuple(communication.tolist()),
            self.allotment,
            tuple(after.tolist()),
            float(self._predict(self._allotment, times).max()),
            float(self._predict(after, times).max()),
        )
        self._allotment = after
        self.decisions.append(decision)
        return decision
