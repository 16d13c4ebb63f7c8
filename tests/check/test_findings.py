"""What a check says of what it saw."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from tf_rdmabatch.check.cluster import Task
from tf_rdmabatch.check.findings import notes, problems
from tf_rdmabatch.check.lead import tournament
from tf_rdmabatch.check.report import render
from tf_rdmabatch.check.result import Pair, Result, from_json


def facts(name: str, **others: Any) -> dict[str, Any]:
    return {
        "host": f"host-of-{name}",
        "listens": "10.0.0.1:29400",
        "version": "0.1.0",
        "tensorflow": "2.21.0",
        "python": "3.11.7",
        "kernel": "6.1",
        "cpus": 8,
        "load": 0.5,
        "memlock": None,
        "devices": [],
        "transports": {},
        "clock_s": 0.0,
    } | others


def make_result(names: str = "abcd") -> Result:
    """Return a check that found nothing wrong."""
    tasks = tuple(Task(name, f"host-of-{name}:29400") for name in names)
    result = Result(tasks, 5.0, {name: facts(name) for name in names})
    for source in names:
        for target in set(names) - {source}:
            pair = Pair(source, target, "", "", "tcp", "tcp (shm: another host)", 50.0, 1.0)
            result.pairs[source, target] = pair
    return result


def fail(result: Result, source: str, target: str, kind: str = "timeout") -> None:
    result.pairs[source, target] = Pair(source, target, kind, "Connection timed out")


def rendered(result: Result) -> str:
    text = io.StringIO()
    render(result, Console(file=text, width=200, markup=False))
    return text.getvalue()


def test_nothing_wrong() -> None:
    result = make_result()
    assert problems(result) == notes(result) == []
    assert "tcp (shm: another host): all" in rendered(result)
    assert "All 4 tasks reach each other." in rendered(result)


def test_one_direction_of_one_link() -> None:
    result = make_result()
    fail(result, "a", "b")
    (problem,) = problems(result)
    assert problem.startswith("a does not reach b at host-of-b:29400: timed out")
    assert "firewall drops what goes to port 29400" in problem
    assert "WRONG: a does not reach b" in rendered(result)


def test_task_that_nobody_reaches_is_one_problem() -> None:
    result = make_result()
    del result.facts["d"]
    result.missing["d"] = ("timeout", "Connection timed out")
    for source in "abc":
        fail(result, source, "d")
        del result.pairs["d", source]
    (problem,) = problems(result)
    assert problem.startswith("d at host-of-d:29400 can be reached by no other task: timed out")


def test_task_that_reaches_nobody_is_one_problem() -> None:
    result = make_result()
    for target in "bcd":
        fail(result, "a", target, "route")
    (problem,) = problems(result)
    assert problem.startswith("a reaches no other task")


def test_kinds_that_differ_are_told_apart() -> None:
    result = make_result("abc")
    fail(result, "a", "c", "refused")
    fail(result, "b", "c", "name")
    assert len(problems(result)) == 2


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("version", "0.2.0", "versions of tf_rdmabatch differ: 0.1.0 on a, b and c, 0.2.0 on d"),
        ("tensorflow", "2.20.1", "versions of TensorFlow differ"),
        ("listens", "127.0.1.1:29400", "d listens at 127.0.1.1:29400, which no other host can"),
    ],
)
def test_hosts_that_do_not_fit(field: str, value: str, message: str) -> None:
    result = make_result()
    result.facts["d"][field] = value
    (problem,) = problems(result)
    assert message in problem


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("clock_s", -7200.0, "the clock of d is 7200 s behind that of a"),
        ("load", 17.0, "host-of-d (d) is busy: a load of 17 on 8 processors"),
        ("devices", ["mlx5_0"], "there is no RDMA device at a, b and c"),
    ],
)
def test_oddities_are_notes(field: str, value: Any, message: str) -> None:
    result = make_result()
    result.facts["d"][field] = value
    assert problems(result) == []
    (note,) = notes(result)
    assert message in note


def test_small_versions_of_tensorflow_may_differ() -> None:
    result = make_result()
    result.facts["d"]["tensorflow"] = "2.21.1"
    result.facts["c"]["tensorflow"] = None
    assert problems(result) == []


def test_devices_that_are_not_used() -> None:
    result = make_result("ab")
    for name in "ab":
        result.facts[name] |= {"devices": ["mlx5_0"], "memlock": 8 << 20}
    found = notes(result)
    assert sum("may lock 8192 KiB" in note for note in found) == 2
    assert sum("does not use the RDMA devices: tcp" in note for note in found) == 2


@pytest.mark.parametrize("names", ["abcd", "acd"])
def test_slow_task(names: str) -> None:
    result = make_result(names)
    for pair in result.pairs.values():
        if "d" in (pair.source, pair.target):
            pair.gb_per_s = 0.1
    (note,) = notes(result)
    assert note.startswith("the connections of d are slow: 0.1 GB/s over tcp, where 1 GB/s is")


def test_slow_link() -> None:
    result = make_result()
    result.pairs["a", "b"].latency_us = 9000.0
    (note,) = notes(result)
    assert note.startswith("a to b is slow: 9000 us over tcp, where 50 us is usual")


def test_many_tasks_are_summed_up() -> None:
    result = make_result("abcdefghijklmnop")
    fail(result, "a", "b")
    text = rendered(result)
    assert "14 of 15" in text
    assert "from \\ to" not in text


def test_result_survives_json() -> None:
    result = make_result()
    fail(result, "a", "b")
    result.missing["x"] = ("refused", "Connection refused")
    data = json.loads(json.dumps(result.to_json()))
    assert from_json(data) == result


@pytest.mark.parametrize("count", [1, 2, 3, 6, 7])
def test_tournament(count: int) -> None:
    players = list(range(count))
    played = []
    for matches in tournament(players):
        busy = [player for match in matches for player in match]
        assert len(busy) == len(set(busy))
        played += matches
    assert sorted(played) == [(a, b) for a in players for b in players if a != b]
