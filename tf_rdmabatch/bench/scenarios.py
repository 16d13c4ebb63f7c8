"""How fast each worker is in each round: plain numbers, repeatable from a seed.

A factor says how many times as long as a worker of speed 1 takes for a step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Scenario(Protocol):
    """Factors of workers as a function of the round."""

    workers: int

    def factors(self, number: int) -> Floats:
        """Return the factors of a round, from 0 on; shape (workers,), at least 1."""


class Lasting:
    """Scenario A: two workers are slow for good.

    Parameters
    ----------
    workers
        Their number, at least 2.
    slow
        Factors of the last workers. With four workers and the default one is 2 times and one 4
        times slower.
    """

    def __init__(self, workers: int = 4, slow: tuple[float, ...] = (2.0, 4.0)) -> None:
        if workers < 2 or len(slow) > workers:
            raise ValueError(f"{workers} workers are too few for {len(slow)} slow ones, and for 2")
        _check_factors(slow)
        self.workers = workers
        self._factors: Floats = np.ones(workers)
        self._factors[workers - len(slow) :] = slow

    def factors(self, number: int) -> Floats:
        """Return the factors of a round, the same in all; shape (workers,)."""
        _check_round(number)
        return np.copy(self._factors)


class Changing:
    """Scenario B: slow periods that start, move from worker to worker and end.

    Rounds are cut into periods of random lengths. In each of them one worker is slow, by a factor
    that is drawn anew, or nobody is: after a slow period the slowness moves to another worker or
    ends. A quiet period is followed by a slow one.

    Parameters
    ----------
    workers
        Their number, at least 2.
    seed
        Of all draws.
    shortest, longest
        Rounds of a period.
    slow
        The factors that are drawn from.
    move
        Probability that a slow period is followed by another one, on another worker.
    """

    def __init__(
        self,
        workers: int = 4,
        seed: int = 1,
        *,
        shortest: int = 20,
        longest: int = 60,
        slow: tuple[float, ...] = (2.0, 3.0, 4.0),
        move: float = 0.6,
    ) -> None:
        if workers < 2:
            raise ValueError(f"slowness moves between workers: {workers} are too few")
        if not 1 <= shortest <= longest:
            raise ValueError(f"a period cannot have from {shortest} to {longest} rounds")
        if not slow or not 0 <= move <= 1:
            raise ValueError("slow needs a factor, and move is a probability")
        _check_factors(slow)
        self.workers = workers
        self._lengths = shortest, longest
        self._slow = slow
        self._move = move
        self._random = np.random.default_rng(seed)
        # Ends of the periods drawn so far, and their factors.
        self._ends: list[int] = []
        self._factors: list[Floats] = []
        self._slow_worker: int | None = None

    def factors(self, number: int) -> Floats:
        """Return the factors of a round; shape (workers,). Any round may be asked for."""
        _check_round(number)
        while not self._ends or number >= self._ends[-1]:
            self._draw()
        return np.copy(self._factors[bisect_right(self._ends, number)])

    def _draw(self) -> None:
        """Append the next period; the first is quiet, and is seen from somewhere within it."""
        random, last = self._random, self._slow_worker
        factors: Floats = np.ones(self.workers)
        if not self._ends or (last is not None and random.random() >= self._move):
            self._slow_worker = None
        else:
            others = [worker for worker in range(self.workers) if worker != last]
            self._slow_worker = int(random.choice(others))
            factors[self._slow_worker] = random.choice(self._slow)
        shortest, longest = self._lengths if self._ends else (1, self._lengths[0])
        begin = self._ends[-1] if self._ends else 0
        self._ends.append(begin + int(random.integers(shortest, longest + 1)))
        self._factors.append(factors)


SCENARIOS: dict[str, Callable[[int, int], Scenario]] = {
    "A": lambda workers, seed: Lasting(workers),  # noqa: ARG005
    "B": Changing,
}


def make_scenario(name: str, workers: int = 4, seed: int = 1) -> Scenario:
    """Return a scenario by its name, ``"A"`` or ``"B"``; A has no use for the seed.

    Raises
    ------
    ValueError
        There is none of this name, or it needs more workers.
    """
    if name not in SCENARIOS:
        raise ValueError(f"the scenario {name!r} is not one of {', '.join(SCENARIOS)}")
    return SCENARIOS[name](workers, seed)


def ideal_seconds(factors: Floats, steps: int, step_seconds: float) -> float:
    """Return the least time of a round: all work spread by the workers' true speeds.

    Work is divisible here, so that no allotment of whole steps can be faster.

    Parameters
    ----------
    factors
        Of the workers, shape (workers,).
    steps
        Of the round, all together.
    step_seconds
        What one takes a worker of factor 1.
    """
    return steps * step_seconds / float(np.sum(1 / factors))


def _check_round(number: int) -> None:
    if number < 0:
        raise ValueError(f"rounds are counted from 0, not {number}")


def _check_factors(factors: tuple[float, ...]) -> None:
    if not all(np.isfinite(f) and f >= 1 for f in factors):
        raise ValueError(f"factors are at least 1, not {factors!r}")
