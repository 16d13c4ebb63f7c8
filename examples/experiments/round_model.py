"""A model of rounds: workers pull, compute their micro-steps and push; servers share a bandwidth.

Discrete events without an event queue: within a round, what a worker does depends on others only
through the servers, which take pushes in the order of their arrival, and through the round's end.
Both are computed for all workers at once. Seconds everywhere; vectors have shape (workers,).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tf_rdmabatch.strategy.step_allocator import StepAllocator

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Costs:
    """What the parts of a round cost.

    Parameters
    ----------
    step
        A micro-step on a worker whose factor is 1.
    pull
        Until all workers, who begin at once and share the servers' bandwidth, have pulled.
    push
        A worker's push to servers that have nothing else to do.
    service
        What a push keeps the servers busy, at most `push`.
    fixed
        Of each round, whatever is in it: updates, publishing, calls.
    """

    step: float
    pull: float = 0.0
    push: float = 0.0
    service: float = 0.0
    fixed: float = 0.0

    @classmethod
    def of_network(
        cls,
        step: float,
        workers: int,
        servers: int,
        *,
        megabytes: float,
        worker_rate: float,
        server_rate: float,
        fixed: float,
    ) -> Costs:
        """Return the costs where parameters lie evenly on the servers.

        Parameters
        ----------
        step, fixed
            As above.
        workers, servers
            How many.
        megabytes
            Of all parameters.
        worker_rate, server_rate
            What a worker's and a server's link carry in a direction, MB/s.
        """
        alone = megabytes / min(worker_rate, servers * server_rate)
        service = megabytes / (servers * server_rate)
        return cls(step, max(alone, workers * service), alone, service, fixed)


@dataclass
class Outcome:
    """What came of some rounds.

    `seconds` and `bound` have shape (rounds,): how long each took, and the shortest that it could
    have taken. `lost` is the part of the gradients that was dropped, `moved` the micro-steps that
    changed their worker, `decision` the seconds that each round's decision took.
    """

    seconds: Floats
    bound: Floats
    lost: float
    moved: float
    decision: Floats

    @property
    def over_bound(self) -> float:
        """Time for a gradient that counts, over the least possible."""
        return float(self.seconds.sum() / self.bound.sum() / (1 - self.lost))


class System(Protocol):
    """A way to spread a round's micro-steps.

    `waits_for` is how many workers' pushes end a round, `moved` the micro-steps that have changed
    their worker so far.
    """

    waits_for: int
    moved: float

    @property
    def shares(self) -> Floats:
        """The micro-steps of each worker in the next round."""

    def observe(self, step: Floats, communication: Floats) -> None:
        """Take what a micro-step, and what pulls and pushes took each worker; NaN: unknown."""


class Static:
    """Every worker has as many micro-steps, always; all are waited for, or the first ones.

    Parameters
    ----------
    num_steps
        Micro-steps of a round.
    workers
        How many.
    dropped
        Of the workers: those that come last are not waited for, and their gradients dropped.
    """

    def __init__(self, num_steps: int, workers: int, dropped: float = 0.0) -> None:
        self._shares = np.full(workers, num_steps / workers)
        self.waits_for = workers - math.ceil(dropped * workers)
        self.moved = 0.0

    @property
    def shares(self) -> Floats:
        """As many for each."""
        return self._shares

    def observe(self, step: Floats, communication: Floats) -> None:
        """Learn nothing."""


class Resizing:
    """Batches are resized so that all are expected to end at once, as LB-BSP does it.

    Parts of a micro-step are possible, which flatters it. The speed of the next round is predicted
    as a moving average in which the last round has a weight.

    Parameters
    ----------
    num_steps, workers
        As in `Static`.
    weight
        Of the last round; 1 is the paper's memoryless predictor.
    """

    def __init__(self, num_steps: int, workers: int, weight: float = 1.0) -> None:
        self._num_steps = num_steps
        self._weight = weight
        self._speed: Floats | None = None
        self._shares = np.full(workers, num_steps / workers)
        self.waits_for = workers
        self.moved = 0.0

    @property
    def shares(self) -> Floats:
        """By the speeds that are expected."""
        return self._shares

    def observe(self, step: Floats, communication: Floats) -> None:
        """Spread the next round by the speeds that are expected."""
        del communication
        speed = 1 / step
        old = self._speed if self._speed is not None else speed
        self._speed = old + self._weight * (speed - old)
        shares = self._num_steps * self._speed / self._speed.sum()
        self.moved += float(np.abs(shares - self._shares).sum()) / 2
        self._shares = shares


class Reallocating:
    """The project's own: whole micro-steps move, as the step allocator decides.

    Parameters
    ----------
    num_steps, workers
        As in `Static`.
    minimum
        Micro-steps that each worker gets at least.
    """

    def __init__(self, num_steps: int, workers: int, minimum: int = 1) -> None:
        self._allocator = StepAllocator(num_steps, workers, minimum=minimum)
        self.waits_for = workers
        self.moved = 0.0

    @property
    def shares(self) -> Floats:
        """The allotment."""
        return np.array(self._allocator.allotment, np.float64)

    def observe(self, step: Floats, communication: Floats) -> None:
        """Let the allocator see the round; who has no step reports no time."""
        step = np.where(np.array(self._allocator.allotment) > 0, step, np.nan)
        decision = self._allocator.observe(step, communication)
        if decision is not None:
            self.moved += decision.moved


def pushed(ready: Floats, costs: Costs) -> Floats:
    """Return when each worker's push is in, of workers that are ready to push at some time.

    The servers take pushes in the order of arrival, each for `costs.service`: push i ends at the
    latest of ready[j] + (i - j + 1) * service over all j up to i, in that order.
    """
    order = np.argsort(ready, kind="stable")
    position = np.arange(len(ready))
    queue = np.maximum.accumulate(ready[order] - position * costs.service)
    done = np.empty_like(ready)
    done[order] = queue + (position + 1) * costs.service
    return np.maximum(done, ready + costs.push)


def shortest_round(num_steps: float, step: Floats, costs: Costs) -> float:
    """Return what no way to spread the steps of a round can go below, with its workers' true times.

    Steps are divisible, every time of the round is known beforehand, and pushes meet only where
    they have to: from the pulls' end until `x` worker w computes (x - push) / step[w] micro-steps.
    """
    computing = num_steps / float((1 / step).sum())
    return costs.pull + max(computing + costs.push, len(step) * costs.service) + costs.fixed


def simulate(system: System, num_steps: int, factors: Floats, costs: Costs) -> Outcome:
    """Run rounds.

    A worker that a round did not wait for goes on until it has pushed, in vain, and then begins
    with the round that the others are in.

    Parameters
    ----------
    system
        How the steps are spread.
    num_steps
        Of a round.
    factors
        How much longer than `costs.step` a micro-step takes, shape (rounds, workers).
    costs
        Of everything.
    """
    rounds, workers = factors.shape
    seconds, bound, decision = np.empty(rounds), np.empty(rounds), np.empty(rounds)
    free = np.zeros(workers)
    communication = np.full(workers, costs.pull + costs.push)
    now = 0.0
    for number, row in enumerate(factors):
        step = costs.step * row
        begin = np.maximum(now, free)
        ready = begin + costs.pull + system.shares * step
        done = pushed(ready, costs)
        end = float(np.partition(done, system.waits_for - 1)[system.waits_for - 1]) + costs.fixed
        free = np.where(begin < end, done, free)
        seconds[number] = end - now
        bound[number] = shortest_round(num_steps, step, costs)
        now = end
        asked = perf_counter()
        system.observe(step, communication)
        decision[number] = perf_counter() - asked
    lost = 1 - system.waits_for / workers
    return Outcome(seconds, bound, lost, system.moved, decision)
