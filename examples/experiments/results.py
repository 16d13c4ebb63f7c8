"""What experiments have in common: a file of results that grows, a progress bar, plots."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]
# Of colour-blind people too: M. Okabe and K. Ito, Color Universal Design, 2008.
COLORS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#000000"]


class Results:
    """Rows of results, written after each: an interrupted experiment goes on from there.

    Parameters
    ----------
    path
        Of the file, a list of objects; it need not exist. None: nothing is kept.
    keys
        The fields that say which measurement a row is.

    Raises
    ------
    ValueError
        The file is something else.
    """

    def __init__(self, path: Path | None, keys: Sequence[str]) -> None:
        self._path = path
        self._keys = tuple(keys)
        self.rows: list[Row] = []
        if path is not None and path.exists():
            self.rows = read_rows(path)

    def find(self, wanted: Row) -> Row | None:
        """Return the row that has the keys' values of `wanted`, if it is there."""
        for row in self.rows:
            if all(row.get(key) == wanted.get(key) for key in self._keys):
                return row
        return None

    def add(self, row: Row) -> None:
        """Add a row, in the place of one with the same keys."""
        old = self.find(row)
        self.rows = [r for r in self.rows if r is not old] + [row]
        if self._path is not None:
            # Whoever is interrupted here keeps the old file.
            new = self._path.with_name(self._path.name + ".new")
            lines = ",\n ".join(json.dumps(r) for r in self.rows)
            new.write_text(f"[{lines}]\n", encoding="utf-8")
            new.replace(self._path)


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file of results.

    Raises
    ------
    ValueError
        It is not one.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path} is no list of results: name another file, or remove it")
    return rows


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Show on stderr how far an experiment is, what it does and how long it will take."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        yield bar


def new_figure(rows: int, columns: int) -> tuple[Figure, list[Any]]:
    """Return a figure and its axes, row by row, in the experiments' style."""
    # A plot is optional, and so is what draws it.
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    size = (4.6 * columns, 3.8 * rows)
    figure, axes = plt.subplots(
        rows, columns, figsize=size, layout="constrained", dpi=130, squeeze=False
    )
    for one in axes.flat:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(axis="y", color="#dddddd", linewidth=0.6)
        one.set_axisbelow(True)
    return figure, list(axes.flat)
