"""What is wrong, in sentences: first what keeps a job from running, then what makes it slow."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tf_rdmabatch.addresses import is_loopback, split_host
from tf_rdmabatch.check.reach import KINDS, explain
from tf_rdmabatch.check.result import Pair, Result

# Beyond, a connection is slow beside the others of its transport.
_SLOW = 3.0
# Less than that in microseconds is noise of a busy host.
_LATENCY_US = 200.0
_CLOCK_SECONDS = 60.0
_LITTLE_MEMLOCK = 64 << 20


def problems(result: Result) -> list[str]:
    """Return what keeps a job from running, worst first; empty where it can run."""
    return [*_unreachable(result), *_loopback(result), *_versions(result)]


def notes(result: Result) -> list[str]:
    """Return what may make a job slow or its behaviour odd."""
    return [*_slow(result), *_rdma(result), *_busy(result), *_clocks(result)]


def _names(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _unreachable(result: Result) -> Iterable[str]:
    addresses = {task.name: task.address for task in result.tasks}
    lead = result.tasks[0].name
    failed = {key: pair for key, pair in result.pairs.items() if pair.kind}
    for name, (kind, detail) in result.missing.items():
        if kind != "start":
            failed.setdefault((lead, name), Pair(lead, name, kind, detail))
            continue
        yield f"{name} at {addresses[name]} could not take part: {detail}"
        failed = {key: pair for key, pair in failed.items() if name not in key}

    def sentence(pairs: Sequence[Pair], subject: str) -> str:
        pair = pairs[0]
        meaning = explain(pair.kind, addresses[pair.target], result.timeout)
        detail = f" ({pair.detail})" if pair.detail else ""
        return f"{subject}: {KINDS[pair.kind].short}{detail}. {_capital(meaning)}"

    for name, address in addresses.items():
        pairs = [pair for pair in failed.values() if pair.target == name]
        tried = [s for s, t in {*result.pairs, *failed} if t == name]
        if pairs and len(pairs) == len(tried) and len({pair.kind for pair in pairs}) == 1:
            yield sentence(pairs, f"{name} at {address} can be reached by no other task")
            failed = {key: pair for key, pair in failed.items() if key[1] != name}
    for source in addresses:
        pairs = [pair for pair in failed.values() if pair.source == source]
        if len(pairs) > 1 and len(pairs) == len(addresses) - 1:
            yield sentence(pairs, f"{source} reaches no other task, such as {pairs[0].target}")
            failed = {key: pair for key, pair in failed.items() if key[0] != source}
    for pair in failed.values():
        yield sentence(
            [pair], f"{pair.source} does not reach {pair.target} at {addresses[pair.target]}"
        )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _loopback(result: Result) -> Iterable[str]:
    if len({facts["host"] for facts in result.facts.values()}) < 2:
        return
    for name, facts in result.facts.items():
        if is_loopback(split_host(facts["listens"])[0]):
            yield (
                f"{name} listens at {facts['listens']}, which no other host can reach: that is "
                f"what its name means on {facts['host']} itself. Correct /etc/hosts there"
            )


def _versions(result: Result) -> Iterable[str]:
    def minor(version: str) -> str:
        return ".".join(version.split(".")[:2])

    for title, field, significant in (
        ("tf_rdmabatch", "version", str),
        ("TensorFlow", "tensorflow", minor),
    ):
        groups = _grouped(result, lambda facts, f=field: facts[f])  # type: ignore[misc]
        groups.pop(None, None)
        if len({significant(version) for version in groups}) > 1:
            found = ", ".join(f"{version} on {_names(names)}" for version, names in groups.items())
            yield f"the versions of {title} differ: {found}. Install the same everywhere"


def _grouped(result: Result, key: Callable[[dict[str, Any]], Any]) -> dict[Any, list[str]]:
    groups: dict[Any, list[str]] = {}
    for name, facts in result.facts.items():
        groups.setdefault(key(facts), []).append(name)
    return groups


def _slow(result: Result) -> Iterable[str]:
    for transport in sorted({pair.transport for pair in result.pairs.values() if pair.transport}):
        pairs = [
            pair
            for pair in result.pairs.values()
            if pair.transport == transport and pair.latency_us is not None and pair.gb_per_s
        ]
        yield from _outliers(
            pairs,
            lambda pair: 1 / (pair.gb_per_s or 1),
            lambda value: f"{1 / value:.3g} GB/s",
            transport,
            0.0,
        )
        yield from _outliers(
            pairs,
            lambda pair: pair.latency_us or 0.0,
            lambda value: f"{value:.0f} us",
            transport,
            _LATENCY_US,
        )


def _outliers(
    pairs: Sequence[Pair],
    cost: Callable[[Pair], float],
    shown: Callable[[float], str],
    transport: str,
    least: float,
) -> Iterable[str]:
    """Name tasks all of whose connections are slow beside the others', then single slow ones."""
    of_task: dict[str, list[float]] = {}
    for pair in pairs:
        for name in (pair.source, pair.target):
            of_task.setdefault(name, []).append(cost(pair))
    if len(of_task) < 3:
        return
    # Of a task that is well, those with a slow one are slow too: half of them, with three tasks.
    better = {name: sorted(costs)[len(costs) // 4] for name, costs in of_task.items()}
    usual = statistics.median(better.values())

    def is_slow(value: float) -> bool:
        return value > _SLOW * usual and value > usual + least

    slow = [name for name, value in better.items() if is_slow(value)]
    for name in slow:
        yield (
            f"the connections of {name} are slow: {shown(better[name])} over {transport}, where "
            f"{shown(usual)} is usual here. Look at its link, its interface's speed and its load"
        )
    for pair in pairs:
        if is_slow(cost(pair)) and not {pair.source, pair.target} & {*slow}:
            yield (
                f"{pair.source} to {pair.target} is slow: {shown(cost(pair))} over {transport}, "
                f"where {shown(usual)} is usual here"
            )


def _rdma(result: Result) -> Iterable[str]:
    having = {name for name, facts in result.facts.items() if facts["devices"]}
    if having and having != set(result.facts):
        without = [name for name in result.facts if name not in having]
        yield f"there is no RDMA device at {_names(without)}, and there is at the other tasks"
    for name in having:
        limit = result.facts[name]["memlock"]
        if limit is not None and limit < _LITTLE_MEMLOCK:
            yield (
                f"{name} may lock {limit >> 10} KiB of memory for its RDMA device: raise memlock "
                "in /etc/security/limits.conf (`ulimit -l`), or of the container or service"
            )
    for pair in result.pairs.values():
        both = {pair.source, pair.target} <= having
        if both and pair.transport and pair.transport not in ("shm", "verbs"):
            yield f"{pair.source} to {pair.target} does not use the RDMA devices: {pair.choice}"


def _busy(result: Result) -> Iterable[str]:
    for host, names in _grouped(result, lambda facts: facts["host"]).items():
        facts = result.facts[names[0]]
        if facts["load"] > 2 * facts["cpus"]:
            yield (
                f"{host} ({_names(names)}) is busy: a load of {facts['load']:g} on "
                f"{facts['cpus']} processors, so its figures are low"
            )


def _clocks(result: Result) -> Iterable[str]:
    for name, facts in result.facts.items():
        if abs(facts["clock_s"]) > _CLOCK_SECONDS:
            way = "ahead of" if facts["clock_s"] > 0 else "behind"
            yield (
                f"the clock of {name} is {abs(facts['clock_s']):.0f} s {way} that of "
                f"{result.tasks[0].name}: training does not mind, logs and files do"
            )
