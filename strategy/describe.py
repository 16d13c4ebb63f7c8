"""Says in a line what runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def describe_job(
    tasks: Mapping[str, str],
    connections: Mapping[tuple[str, str], str],
    replicas: int,
    block_size: int | str | None,
) -> str:
    """Return what a job consists of.

    Parameters
    ----------
    tasks
        The address of each, by its name.
    connections
        The transport of each and why it was picked, by the names of the two tasks.
    replicas
        Number of virtual replicas.
    block_size
        In bytes; None is as much as a slot holds, ``"auto"`` what workers find best.
    """
    sizes: dict[int | str | None, str] = {
        None: "of a slot",
        "auto": "found out in the first rounds",
    }
    return "; ".join(
        [
            ", ".join(f"{name} at {address}" for name, address in tasks.items()),
            f"transport {_describe_transports(connections)}",
            f"block size {sizes.get(block_size, f'{block_size} bytes')}",
            f"{replicas} virtual replicas",
        ]
    )


def _describe_transports(connections: Mapping[tuple[str, str], str]) -> str:
    by_choice: dict[str, list[str]] = {}
    for (one, other), choice in connections.items():
        by_choice.setdefault(choice, []).append(f"{one}-{other}")
    if len(by_choice) == 1:
        return next(iter(by_choice))
    return ", ".join(f"{choice} for {', '.join(pairs)}" for choice, pairs in by_choice.items())


def describe_contents(contents: Sequence[Sequence[int]]) -> str:
    """Return where the variables are.

    Parameters
    ----------
    contents
        Bytes of each variable on each server.
    """
    return "; ".join(
        f"ps:{server} has {len(sizes)} variable{'s' * (len(sizes) != 1)}, {sum(sizes):,} bytes"
        for server, sizes in enumerate(contents)
    )
