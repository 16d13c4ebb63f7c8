"""The part of the leading task: it asks the others, pair by pair, and gathers what they find.

Each wait has a bound: `wait` for the tasks to come up, then for each pair some times `timeout`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tf_rdmabatch.check.calls import CallError, call
from tf_rdmabatch.check.cluster import Task
from tf_rdmabatch.check.reach import ReachError, reach
from tf_rdmabatch.check.result import Pair, Result
from tf_rdmabatch.engine import Connection, Engine, EngineError

T = TypeVar("T")
_AT_ONCE = 64
# Of these more waiting makes no difference.
_FINAL = ("token", "version", "stranger", "transport")
# What an answer may take besides what it waits for.
_SLACK = 10.0

Progress = Callable[[str, float], None]


def run(
    tasks: Sequence[Task],
    engine: Engine,
    *,
    wait: float,
    timeout: float,
    seconds: float,
    progress: Progress,
) -> Result:
    """Check a cluster whose tasks all have an `Agent`, this one included.

    Parameters
    ----------
    tasks
        All of them.
    engine
        For the calls; nobody else receives its messages.
    wait
        Seconds for the tasks to come up.
    timeout
        Seconds for a connection.
    seconds
        For each figure of each pair.
    progress
        Is told what is done now, and which share of it, from 0 to 1.
    """
    result = Result(tuple(tasks), timeout)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        lead = _Lead(result, engine, pool, progress)
        lead.connect(time.monotonic() + wait)
        lead.reach_all()
        lead.measure_all(seconds)
        lead.end()
    return result


def longest(count: int, wait: float, timeout: float, seconds: float) -> float:
    """Return the seconds that `run` takes at most for so many tasks."""
    at_a_time = 1 + count // _AT_ONCE
    # A call may take its bound to be sent, and again to be answered.
    calls = (
        2 * (timeout + _SLACK)
        + 2 * _reach_bound(count, timeout)
        + 2 * _measure_bound(timeout, seconds) * 2 * count
        + 2 * timeout
    )
    return wait + at_a_time * (3 * timeout + calls)


def _reach_bound(targets: int, timeout: float) -> float:
    # Three steps each, in as many turns as 32 at a time need.
    return 3 * timeout * (1 + targets // 32) + _SLACK


def _measure_bound(timeout: float, seconds: float) -> float:
    # Three steps to reach the other, two for its region, and the figures.
    return 6 * timeout + _SLACK + 4 * seconds


class _Lead:
    def __init__(
        self, result: Result, engine: Engine, pool: ThreadPoolExecutor, progress: Progress
    ) -> None:
        self._result, self._engine, self._pool = result, engine, pool
        self._progress = progress
        self._connections: dict[str, Connection] = {}

    def connect(self, deadline: float) -> None:
        """Connect to all tasks and ask for their facts."""
        done = 0

        def one(task: Task) -> None:
            nonlocal done
            try:
                connection = self._await(task, deadline)
                if connection.peer.name != task.name:
                    raise ReachError("other", f"{connection.peer.name} answered")
                before = time.time()
                facts = call(connection, "facts", self._result.timeout + _SLACK)
                # Both ways took as long, for all that is known.
                facts["clock_s"] = facts.pop("time") - (before + time.time()) / 2
                self._result.facts[task.name] = facts
                self._connections[task.name] = connection
            except ReachError as error:
                self._result.missing[task.name] = (error.kind, error.detail)
            except (EngineError, CallError) as error:
                self._result.missing[task.name] = ("lost", str(error))
            done += 1
            self._progress("connecting", done / len(self._result.tasks))

        self._progress("connecting", 0.0)
        list(self._pool.map(one, self._result.tasks))
        order = [task.name for task in self._result.tasks if task.name in self._connections]
        self._result.facts = {name: self._result.facts[name] for name in order}

    def _await(self, task: Task, deadline: float) -> Connection:
        while True:
            try:
                return reach(self._engine, task.address, self._result.timeout)
            except ReachError as error:
                if error.kind in _FINAL or time.monotonic() >= deadline:
                    raise
            time.sleep(0.1)

    def reach_all(self) -> None:
        """Have each task connect to each other one, at the same time."""
        tasks, timeout = self._result.tasks, self._result.timeout
        done = 0

        def one(source: str) -> None:
            nonlocal done
            targets = [task for task in tasks if task.name != source]
            found = self._call(
                source,
                "reach",
                _reach_bound(len(targets), timeout),
                addresses=[t.address for t in targets],
                timeout=timeout,
            )
            for index, target in enumerate(targets):
                answer = found if isinstance(found, dict) else found[index]
                self._result.pairs[source, target.name] = Pair(source, target.name, **answer)
            done += 1
            self._progress("reaching", done / len(self._connections))

        self._progress("reaching", 0.0)
        list(self._pool.map(one, list(self._result.facts)))

    def measure_all(self, seconds: float) -> None:
        """Measure each pair that a transport connects; no task in two pairs at a time."""
        timeout = self._result.timeout
        bound = _measure_bound(timeout, seconds)
        addresses = {task.name: task.address for task in self._result.tasks}

        def one(names: tuple[str, str]) -> None:
            pair = self._result.pairs[names]
            answer = self._call(
                names[0],
                "measure",
                bound,
                address=addresses[names[1]],
                seconds=seconds,
                timeout=timeout,
            )
            for field, value in answer.items():
                setattr(pair, field, value)

        rounds = list(tournament(list(self._result.facts)))
        for number, pairs in enumerate(rounds):
            self._progress("measuring", number / len(rounds))
            there = [(a, b) for a, b in pairs if not self._result.pairs[a, b].kind]
            list(self._pool.map(one, there))
        self._progress("measuring", 1.0)

    def end(self) -> None:
        """Send all tasks home."""
        list(
            self._pool.map(
                lambda name: self._call(name, "end", self._result.timeout), list(self._connections)
            )
        )

    def _call(self, name: str, what: str, bound: float, **arguments: Any) -> Any:
        """Return a task's answer, or what a pair is told instead."""
        connection = self._connections[name]
        try:
            return call(connection, what, bound, **arguments)
        except EngineError as error:
            # A late answer would be taken for the next one.
            connection.close()
            return {"kind": "lost", "detail": f"{name} did not say: {error}"}
        except CallError as error:
            return {"kind": "lost", "detail": f"{name} could not: {error}"}


def tournament(players: Sequence[T]) -> Iterable[list[tuple[T, T]]]:
    """Yield rounds in which each player has at most one match; all ordered pairs occur once."""
    ring: list[T | None] = [*players, *([None] * (len(players) % 2))]
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        matches = [
            (a, b)
            for a, b in zip(ring[:half], reversed(ring[half:]), strict=True)
            if a is not None and b is not None
        ]
        yield matches
        yield [(b, a) for a, b in matches]
        ring.insert(1, ring.pop())
