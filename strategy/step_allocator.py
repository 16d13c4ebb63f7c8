"""Which worker runs how many micro-steps of a round, from the times that were measured.

No TensorFlow here: plain numbers in, an allotment out. `best_allotment` makes the slowest worker's
predicted round as short as it can be. `StepAllocator` estimates the times from round to round, and
moves steps where that gains something.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tf_rdmabatch.strategy.allotments import Integers, best_allotment, predicted_times
from tf_rdmabatch.strategy.time_estimate import Floats, TimeEstimate, reported

# Rounds of a worker before its times count: the first one also traces and connects.
_WARM_UP = 3
# Rounds without a word of a worker after which the others no longer wait for its first times.
_PATIENCE = 10
# Rounds whose median is what a round takes besides its slowest worker's time.
_ROUNDS = 9
# Moves that the noise of the estimates may have made up are not made: in standard errors.
_CONFIDENCE = 1.0


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
        Micro-steps that each worker gets at least. With 0, workers that have none are given one
        every `probe_rounds` rounds, or nobody would notice that they have recovered.
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

    def _best(self, times: tuple[Floats, Floats], tried: Integers | int = 0) -> Integers:
        step, communication = times
        minimum = np.where(self._active, np.maximum(self._minimum, tried), 0)
        if int(minimum.sum()) > self._num_steps:
            minimum = np.zeros_like(minimum)
        return best_allotment(self._num_steps, step, communication, minimum, self._allotment)

    def _decide(self) -> Decision | None:
        working = self._active & (self._allotment > 0)
        unknown = (self._step.rounds < _WARM_UP) & (self._silent < _PATIENCE)
        if (working & unknown).any():
            return None
        times = self._times()
        due = self._due()
        after = self._probing(due, times) if due.size else self._better(times)
        if (after == self._allotment).all():
            return None
        return self._move(after, times)

    def _better(self, times: tuple[Floats, Floats]) -> Integers:
        """Return the best allotment, or the present one where too little is gained."""
        best = self._best(times)
        now = self._predict(self._allotment, times)
        then = self._predict(best, times)
        slowest, next_slowest = int(now.argmax()), int(then.argmax())
        error = self._step.relative_error
        margin = _CONFIDENCE * math.hypot(error[slowest], error[next_slowest])
        before, after = float(now.max()), float(then.max())
        overhead = float(np.median(self._overhead)) if self._overhead else 0.0
        gain = (before - after) / (before + overhead)
        return best if gain > self._threshold + margin else self._allotment

    def _due(self) -> Integers:
        """Return the workers without a step that are tried in the next round.

        Those who are nearly due are tried with the others: a round is as slow as the slowest.
        """
        idle = np.where(self._active, self._idle, 0)
        if idle.max() < self._probe_rounds:
            return np.empty(0, np.int64)
        due = np.flatnonzero(idle > self._probe_rounds // 2)
        longest = np.argsort(-idle[due], kind="stable")[: max(1, self._num_steps // 4)]
        return due[longest].astype(np.int64)

    def _probing(self, due: Integers, times: tuple[Floats, Floats]) -> Integers:
        """Return the best allotment in which some workers are tried with a step."""
        for worker in due.tolist():
            self._step.renew(worker)
        tried = np.zeros_like(self._minimum)
        tried[due] = 1
        return self._best(times, tried)

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
