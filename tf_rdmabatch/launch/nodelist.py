"""Slurm's short forms: lists of nodes, of tasks on each, and of ports."""

from __future__ import annotations

import re

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_COUNT = re.compile(r"(\d+)(?:\(x(\d+)\))?")
# Larger ones are a mistake, and would take all memory.
MAX_NODES = 65536


def expand_nodes(text: str) -> list[str]:
    """Return the nodes of a list such as ``gpu[01-03,7],login``, in its order.

    Raises
    ------
    ValueError
        It is no such list.
    """
    nodes: list[str] = []
    for part in _split(text):
        nodes += _expand(part)
        if len(nodes) > MAX_NODES:
            raise ValueError(f"{text!r} has more than {MAX_NODES} nodes")
    return nodes


def _split(text: str) -> list[str]:
    """Cut at the commas that are in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            break
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    if depth or not all(parts):
        raise ValueError(f"{text!r} is not a list of nodes, such as node[01-03,7]")
    return parts


def _expand(part: str) -> list[str]:
    before, bracket, rest = part.partition("[")
    if not bracket:
        return [part]
    ranges, _, after = rest.partition("]")
    names: list[str] = []
    for one in ranges.split(","):
        found = _RANGE.fullmatch(one)
        first, last = (found[1], found[2] or found[1]) if found else ("1", "0")
        if not 0 <= int(last) - int(first) < MAX_NODES:
            raise ValueError(f"[{ranges}] in {part!r} is not a range of numbers, such as [01-03,7]")
        # Leading zeros belong to the name.
        numbers = (str(n).zfill(len(first)) for n in range(int(first), int(last) + 1))
        names += [f"{before}{number}" for number in numbers]
    # There may be another dimension.
    return [name + end for name in names for end in (_expand(after) if after else [""])]


def expand_counts(text: str) -> list[int]:
    """Return the tasks of each node from a list such as ``2(x3),1``.

    Raises
    ------
    ValueError
        It is no such list.
    """
    counts: list[int] = []
    for part in text.split(","):
        found = _COUNT.fullmatch(part)
        times = int(found[2] or 1) if found else 0
        if not found or not 1 <= times <= MAX_NODES:
            raise ValueError(f"{text!r} is not a list of counts, such as 2(x3),1")
        counts += [int(found[1])] * times
    return counts


def expand_ports(text: str) -> list[int]:
    """Return the ports of a list such as ``12000-12003,12010``.

    Raises
    ------
    ValueError
        It is no such list.
    """
    ports: list[int] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not 0 < first <= last < 65536:
            raise ValueError(f"{text!r} is not a list of ports, such as 12000-12003")
        ports += range(first, last + 1)
    return ports
