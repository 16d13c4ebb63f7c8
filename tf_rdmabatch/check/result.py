"""What a check has found out."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tf_rdmabatch.check.cluster import Task


@dataclass
class Pair:
    """What one task found when it connected to another.

    Attributes
    ----------
    source, target
        The names of both.
    kind, detail
        Why it failed, one of `reach.KINDS`, and what the system said; empty where it did not.
    transport, choice
        What connects them, and why that.
    latency_us, gb_per_s
        See `measure.Speed`; the data of the second goes from source to target.
    """

    source: str
    target: str
    kind: str = ""
    detail: str = ""
    transport: str = ""
    choice: str = ""
    latency_us: float | None = None
    gb_per_s: float | None = None


@dataclass
class Result:
    """A check.

    Attributes
    ----------
    tasks
        All, the leading one first.
    timeout
        Seconds that a connection was given.
    facts
        What each task that could be called said of its host (`facts.collect`), by name.
    missing
        Why a task could not be called, a kind and a detail, by name.
    pairs
        By source and target.
    """

    tasks: tuple[Task, ...]
    timeout: float
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    missing: dict[str, tuple[str, str]] = field(default_factory=dict)
    pairs: dict[tuple[str, str], Pair] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it; `from_json` is the way back."""
        return {
            "tasks": [asdict(task) for task in self.tasks],
            "timeout": self.timeout,
            "facts": self.facts,
            "missing": self.missing,
            "pairs": [asdict(pair) for pair in self.pairs.values()],
        }


def from_json(data: dict[str, Any]) -> Result:
    """Return what `Result.to_json` was made of."""
    pairs = [Pair(**pair) for pair in data["pairs"]]
    return Result(
        tuple(Task(**task) for task in data["tasks"]),
        data["timeout"],
        data["facts"],
        {name: (kind, detail) for name, (kind, detail) in data["missing"].items()},
        {(pair.source, pair.target): pair for pair in pairs},
    )
