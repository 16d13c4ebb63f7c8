"""What ``tf-rdmabatch bench strategy`` runs on each system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SYSTEMS = ("tf_rdmabatch", "stock")


@dataclass(frozen=True)
class Work:
    """The step of a worker.

    Parameters
    ----------
    name
        For people.
    summary
        What the step is.
    request
        What the job is told.
    selected
        Whether it is run where nothing is said.
    """

    name: str
    summary: str
    request: dict[str, Any]
    selected: bool = True

    @property
    def has_parts(self) -> bool:
        """Whether computing and communicating can be run one without the other."""
        return "network" in self.request or "ratio" in self.request


def _shapes(count: int, *shape: int) -> dict[str, Any]:
    return {"shapes": [list(shape)] * count}


_MIB = (1 << 20) // 4
# A network's round, and its parts, each alone.
PARTS = ("compute", "communication")
_DIGITS = {"network": "digits", "batch": 32}
_LAYERS = _shapes(25, 4 * _MIB)
TRACE = "trace"
TRACED_WORKERS = (1, 2, 4, 8)

WORKS = {
    work.name: work
    for work in (
        Work("one-100MiB", "one variable of 100 MiB", _shapes(1, 100 * _MIB)),
        Work("160-100MiB", "160 variables, 100 MiB in all", _shapes(160, 100 * _MIB // 160)),
        Work("2000-4KiB", "2000 variables of 4 KiB", _shapes(2000, 1024)),
        Work("trivial", "one scalar", _shapes(1)),
        Work(
            "digits",
            "the network of examples/keras_digits.py, 32 images a step",
            _DIGITS,
        ),
        Work(
            "resnet50",
            "Keras's ResNet50 (100 MB), 8 images of 32 x 32 a step; slow",
            {"network": "resnet50", "batch": 8},
            selected=False,
        ),
        *(
            Work(
                f"layers-{name}",
                f"25 layers of 4 MiB, which compute {words} they communicate, without a processor",
                _LAYERS | {"ratio": ratio},
                selected=False,
            )
            for name, ratio, words in (
                ("1:3", 1 / 3, "a third as long as"),
                ("1:1", 1.0, "as long as"),
                ("3:1", 3.0, "three times as long as"),
            )
        ),
        Work(
            TRACE,
            "the graph of a round of digits, for 1, 2, 4 and 8 workers; nothing is run",
            _DIGITS,
            selected=False,
        ),
    )
}
