"""`StepReallocation` beside a strategy whose workers' times are made up."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

import tf_rdmabatch
from tf_rdmabatch import ops
from tf_rdmabatch.strategy import step_reallocation
from tf_rdmabatch.strategy.stats import round_seconds, wait_seconds

REPORT = np.dtype([(name, np.int64) for name in ops.REPORT_FIELDS])
KEPT = 64


class Fake:
    """What `StepReallocation` uses of a strategy; worker w takes `seconds[w]` a micro-step."""

    consistency = "bsp"

    def __init__(self, seconds: Sequence[float], replicas: int) -> None:
        self.seconds = list(seconds)
        workers = len(self.seconds)
        self.num_replicas_in_sync = replicas
        base, more = divmod(replicas, workers)
        self.allotment = tuple(base + (i < more) for i in range(workers))
        self.number = 0
        number = SimpleNamespace(numpy=lambda: self.number)
        self.extended = SimpleNamespace(rounds=SimpleNamespace(number=number))
        self.clock = 1_000_000_000
        self.reports: list[npt.NDArray[np.void]] = []

    def round(self, **fields: Any) -> float:
        """Run a round and return its seconds; fields of the report may be given another value."""
        self.number += 1
        rows = np.zeros(len(self.seconds), REPORT)
        rows["number"] = rows["version"] = rows["step"] = self.number
        rows["micro_steps"] = self.allotment
        rows["pull_begin"] = self.clock
        rows["pull_end"] = rows["push_begin"] = self.clock + 1_000
        rows["compute_end"] = rows["pull_end"] + 1e9 * np.multiply(self.allotment, self.seconds)
        rows["push_end"] = rows["compute_end"] + 1_000
        end = int(rows["push_end"].max()) + 1_000_000
        for name, value in fields.items():
            rows[name] = value
        self.reports = [*self.reports, rows][-KEPT:]
        seconds, self.clock = (end - self.clock) / 1e9, end
        return seconds

    def round_reports(self, after: int = 0) -> npt.NDArray[np.void]:
        rows = [r for r in self.reports if r["number"].max() > after]
        return np.stack(rows) if rows else np.zeros((0, len(self.seconds)), REPORT)


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each round be looked at, however short."""
    monkeypatch.setattr(step_reallocation, "SHARE", 1e9)


def train(strategy: Fake, reallocation: Any, rounds: int, **fields: Any) -> list[float]:
    seconds = []
    for _ in range(rounds):
        seconds.append(strategy.round(**fields))
        reallocation.update()
    return seconds


@pytest.mark.usefixtures("unhurried")
def test_steps_leave_a_straggler_and_come_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tf_rdmabatch")
    strategy = Fake([0.01, 0.01, 0.01, 0.01], 16)
    reallocation = tf_rdmabatch.StepReallocation(strategy)
    train(strategy, reallocation, 20)
    assert strategy.allotment == (4, 4, 4, 4)
    strategy.seconds[2] = 0.04
    seconds = train(strategy, reallocation, 6)
    # Two rounds tell that it lasts.
    assert seconds[3] < 0.5 * seconds[0]
    assert list(strategy.allotment) == [5, 5, 1, 5]
    strategy.seconds[2] = 0.01
    train(strategy, reallocation, 6)
    assert strategy.allotment == (4, 4, 4, 4)
    moves = [r.message for r in caplog.records if r.message.startswith("steps moved")]
    assert len(moves) == len(reallocation.decisions) >= 2
    assert "[4, 4, 4, 4] ->" in moves[0]


@pytest.mark.usefixtures("unhurried")
def test_waiting_is_nobodys_slowness() -> None:
    strategy = Fake([0.01, 0.01], 8)
    reallocation = tf_rdmabatch.StepReallocation(strategy)
    wait = 400_000_000
    for _ in range(20):
        strategy.round()
        rows = strategy.reports[-1]
        for field in ("pull_end", "push_begin", "compute_end", "push_end"):
            rows[field][0] += wait
        rows["pull_wait"][0] = wait
        strategy.clock += wait
        reallocation.update()
    assert strategy.allotment == (4, 4)
    assert np.nanmin(reallocation.history["wait_seconds"][:, 0]) >= 0.4


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize(
    "fields",
    [
        {"compute_end": 0},
        {"compute_end": 1},  # a clock that went back
        {"pull_end": 0, "push_end": 0},
        {"pull_begin": 0, "pull_end": 0, "compute_end": 0, "push_end": 0},
    ],
)
def test_reports_without_a_time(caplog: pytest.LogCaptureFixture, fields: dict[str, int]) -> None:
    strategy = Fake([0.01, 0.01, 0.01], 9)
    reallocation = tf_rdmabatch.StepReallocation(strategy)
    train(strategy, reallocation, 5)
    train(strategy, reallocation, step_reallocation.SILENT, **fields)
    assert strategy.allotment == (3, 3, 3)
    assert reallocation.decisions == []
    silent = [r.message for r in caplog.records if "has reported no times" in r.message]
    assert [m.partition(" ")[0] for m in silent] == ["worker:0", "worker:1", "worker:2"]


@pytest.mark.usefixtures("unhurried")
def test_a_clock_that_jumps_once_moves_nothing() -> None:
    strategy = Fake([0.01, 0.01], 8)
    reallocation = tf_rdmabatch.StepReallocation(strategy)
    train(strategy, reallocation, 10)
    for jump in (10**15, 10**4):
        strategy.round()
        strategy.reports[-1]["compute_end"][0] = strategy.reports[-1]["pull_end"][0] + jump
        reallocation.update()
        train(strategy, reallocation, 10)
    assert strategy.allotment == (4, 4)


@pytest.mark.usefixtures("unhurried")
def test_evaluations_are_left_out() -> None:
    strategy = Fake([0.01, 0.01], 8)
    reallocation = tf_rdmabatch.StepReallocation(strategy)
    train(strategy, reallocation, 3)
    train(strategy, reallocation, 30, micro_steps=0, compute_end=0, push_begin=0, push_end=0)
    train(strategy, reallocation, 3)
    assert reallocation.history["round"].tolist() == [1, 2, 3, 34, 35, 36]


@pytest.mark.usefixtures("unhurried")
def test_an_allotment_set_by_hand_is_gone_on_from(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tf_rdmabatch")
    strategy = Fake([0.01, 0.01], 8)
    reallocation = tf_rdmabatch.StepReallocation(strategy)
    train(strategy, reallocation, 5)
    strategy.allotment = (7, 1)
    reallocation.update()
    assert "was set to [7, 1] by hand" in caplog.text
    train(strategy, reallocation, 5)
    assert strategy.allotment == (4, 4)


def test_a_fault_of_the_scheduling_is_none_of_training(caplog: pytest.LogCaptureFixture) -> None:
    strategy = Fake([0.01, 0.04], 8)
    reallocation = tf_rdmabatch.StepReallocation(strategy)

    strategy.reports = [np.zeros(1, np.int64)]
    for _ in range(3):
        reallocation.update()
    assert strategy.allotment == (4, 4)
    assert caplog.text.count("training goes on with the allotment [4, 4]") == 1
    assert "IndexError" in caplog.text


def test_looking_takes_a_small_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    strategy = Fake([0.01, 0.01], 8)
    reallocation = tf_rdmabatch.StepReallocation(strategy)
    asked = []
    reports = strategy.round_reports

    def ask(after: int = 0) -> Any:
        asked.append(now)
        return reports(after)

    strategy.round_reports = ask  # type: ignore[method-assign]
    for _ in range(1000):
        strategy.round()
        reallocation.update()
        now += 0.001
        # As if a look took no time, and is known to take that long.
        reallocation._cost = 0.0003
    assert 32 <= len(asked) <= 35


def test_fewer_replicas_than_workers(caplog: pytest.LogCaptureFixture) -> None:
    reallocation = tf_rdmabatch.StepReallocation(Fake([0.01] * 4, 2))
    assert "2 virtual replicas are fewer than the 4 workers" in caplog.text
    assert reallocation.decisions == []
    with pytest.raises(ValueError, match="lower the minimum"):
        tf_rdmabatch.StepReallocation(Fake([0.01] * 4, 2), minimum=1)


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="threshold"):
        tf_rdmabatch.StepReallocation(threshold=1.5)
    with pytest.raises(ValueError, match="minimum"):
        tf_rdmabatch.StepReallocation(minimum=-1)
    with pytest.raises(ValueError, match="probe_rounds"):
        tf_rdmabatch.StepReallocation(probe_rounds=0)
    with pytest.raises(ValueError, match="synchronous"):
        tf_rdmabatch.StepReallocation(tf.distribute.get_strategy())
    with pytest.raises(RuntimeError, match="has no strategy"):
        tf_rdmabatch.StepReallocation().update()
    model = SimpleNamespace(distribute_strategy=tf.distribute.get_strategy())
    with pytest.raises(ValueError, match="compile the model in its scope"):
        tf_rdmabatch.StepReallocation().set_model(model)


@pytest.mark.usefixtures("unhurried")
def test_scalars_and_picture(tmp_path: Path) -> None:
    strategy = Fake([0.01, 0.03], 8)
    reallocation = tf_rdmabatch.StepReallocation(
        strategy, log_dir=tmp_path / "logs", plot=tmp_path / "pictures" / "steps.png"
    )
    train(strategy, reallocation, 10)
    reallocation.on_train_end()
    (file,) = (tmp_path / "logs").iterdir()
    scalars: dict[Any, float] = {}
    for record in tf.data.TFRecordDataset(str(file)):
        event = tf.compat.v1.Event.FromString(record.numpy())
        scalars |= {(v.tag, event.step): v.simple_value for v in event.summary.value}
    assert scalars["allotment/worker_1", 1] == 4
    assert scalars["allotment/worker_1", 10] == strategy.allotment[1] == 2
    assert scalars["step_seconds/worker_0", 10] == pytest.approx(0.01)
    assert scalars["wait_seconds/worker_0", 2] == pytest.approx(0.08, rel=0.1)
    assert ("wait_seconds/worker_0", 1) not in scalars
    picture = (tmp_path / "pictures" / "steps.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000


def test_a_picture_that_cannot_be_written_ends_no_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = Fake([0.01, 0.01], 8)
    (tmp_path / "file").write_text("in the way")
    reallocation = tf_rdmabatch.StepReallocation(strategy, plot=tmp_path / "file" / "steps.png")
    train(strategy, reallocation, 3)
    reallocation.on_train_end()
    assert "could not write" in caplog.text


def test_times_between_rounds() -> None:
    strategy = Fake([0.01, 0.02], 4)
    strategy.round()
    strategy.round()
    before, after = strategy.round_reports()
    assert round_seconds(after, before) == pytest.approx(0.041, rel=1e-3)
    np.testing.assert_allclose(wait_seconds(after, before), [0.021, 0.001], rtol=1e-2)
    assert round_seconds(before, np.zeros_like(before)) is None
    assert np.isnan(wait_seconds(before, np.zeros_like(before))).all()
