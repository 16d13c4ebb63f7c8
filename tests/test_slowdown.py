"""Who is slow when, and limits of processor time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tf_rdmabatch.bench.cpu_time import processes_seconds
from tf_rdmabatch.bench.slowdown import (
    Changing,
    CpuQuota,
    Lasting,
    QuotaError,
    SlowDown,
    ideal_seconds,
    main,
    make_scenario,
)


def test_lasting_slowness() -> None:
    scenario = make_scenario("A")
    for number in (0, 1, 1000):
        assert scenario.factors(number).tolist() == [1, 1, 2, 4]
    assert make_scenario("A", workers=2).factors(0).tolist() == [2, 4]


@pytest.mark.parametrize("seed", range(5))
def test_changing_slowness(seed: int) -> None:
    scenario = Changing(4, seed)
    rows = np.stack([scenario.factors(number) for number in range(4000)])
    # The same from any point, and another from another seed.
    again = Changing(4, seed)
    np.testing.assert_array_equal(again.factors(3999), rows[3999])
    np.testing.assert_array_equal(again.factors(123), rows[123])
    other = Changing(4, seed + 100)
    assert any((other.factors(n) != rows[n]).any() for n in range(4000))
    slow = rows > 1
    assert (slow.sum(axis=1) <= 1).all()
    assert set(rows[slow]) == {2.0, 3.0, 4.0}
    assert slow.any(axis=0).all(), "each worker is slow at some time"
    who = np.where(slow.any(axis=1), slow.argmax(axis=1), -1)
    changes = np.flatnonzero(np.diff(who)) + 1
    assert 1 <= changes[0] <= 20
    assert min(b - a for a, b in pairwise(changes)) >= 20
    steps = {(bool(who[i - 1] >= 0), bool(who[i] >= 0)) for i in changes}
    assert steps == {(False, True), (True, True), (True, False)}, "starts, moves and ends"


def test_the_ideal_is_by_speed() -> None:
    # Speeds of 1, 1, 1/2 and 1/4 are 2.75 workers.
    assert ideal_seconds(np.array([1.0, 1, 2, 4]), 16, 0.1) == pytest.approx(1.6 / 2.75)
    assert ideal_seconds(np.ones(4), 16, 0.1) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_scenario("C"), "'C' is not one of A, B"),
        (lambda: Lasting(1), "1 workers are too few"),
        (lambda: Lasting(4, (0.5,)), "at least 1"),
        (lambda: Changing(1), "1 are too few"),
        (lambda: Changing(4, shortest=9, longest=3), "from 9 to 3 rounds"),
        (lambda: Changing(4, slow=()), "slow needs a factor"),
        (lambda: Changing(4, move=2), "a probability"),
        (lambda: Lasting().factors(-1), "from 0"),
        (lambda: CpuQuota([os.getpid()], 0.0), "from 0.05 to"),
        (lambda: CpuQuota([os.getpid()], float("nan")), "from 0.05 to"),
    ],
)
def test_bad_input_is_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()


def test_another_strategy_cannot_be_slowed() -> None:
    with pytest.raises(TypeError, match="takes a tf_rdmabatch"):
        SlowDown(SimpleNamespace(extended=object()))


@pytest.fixture
def busy() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield process.pid
    process.kill()
    process.wait()


def limited(pid: int, fraction: float) -> CpuQuota:
    """Return a quota that is in force, or skip the test where that is not allowed."""
    quota = CpuQuota([pid], fraction)
    try:
        quota.__enter__()
    except QuotaError as error:
        pytest.skip(str(error))
    return quota


def test_a_quota_limits_a_busy_process(busy: int) -> None:
    groups = Path(f"/proc/{busy}/cgroup")
    own = groups.read_text()
    quota = limited(busy, 0.2)
    try:
        assert groups.read_text() != own
        time.sleep(0.1)
        begin = time.monotonic()
        used = -processes_seconds([busy])
        time.sleep(1.5)
        used += processes_seconds([busy])
        # A busy machine may give it less, and never more.
        assert used / (time.monotonic() - begin) < 0.3
    finally:
        quota.close()
    # It gets more only as the machine has it, but nothing limits it any more.
    assert groups.read_text() == own


def test_a_process_that_is_not_there(capsys: pytest.CaptureFixture[str], busy: int) -> None:
    limited(busy, 0.5).close()
    with pytest.raises(QuotaError, match="there is no process 99999999"), CpuQuota([99999999], 1):
        pass
    assert main(["--pids", "99999999", "--fraction", "0.5"]) == 1
    assert "there is no process" in capsys.readouterr().err


def test_the_command_line(capsys: pytest.CaptureFixture[str], busy: int) -> None:
    limited(busy, 0.5).close()
    arguments = ["--pids", str(busy), "--fraction", "0.5", "--seconds", "0.2"]
    assert main(arguments) == 0
    assert "1 processes have 0.5 processors" in capsys.readouterr().out
