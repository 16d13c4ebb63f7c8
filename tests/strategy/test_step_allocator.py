"""The step allocator: exact, quick to react, calm, and clear about what it does."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tf_rdmabatch.strategy.allotments import best_allotment, predicted_times
from tf_rdmabatch.strategy.step_allocator import Decision, StepAllocator

TIMES = st.floats(0.001, 10)


def one_by_one(
    num_steps: int, step: np.ndarray, communication: np.ndarray, minimum: np.ndarray
) -> np.ndarray:
    """Each step to the worker that would have done it first: the definition."""
    allotment: np.ndarray = minimum.copy()
    while allotment.sum() < num_steps:
        allotment[int((communication + (allotment + 1) * step).argmin())] += 1
    return allotment


# It measures time, of which a busy machine takes any.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_the_slowest_worker_is_as_fast_as_can_be(data: st.DataObject) -> None:
    workers = data.draw(st.integers(1, 6))
    step = np.array(data.draw(st.lists(TIMES, min_size=workers, max_size=workers)))
    communication = np.array(
        data.draw(st.lists(st.floats(0, 5), min_size=workers, max_size=workers))
    )
    minimum = np.array(
        data.draw(st.lists(st.integers(0, 2), min_size=workers, max_size=workers)), np.int64
    )
    num_steps = int(minimum.sum()) + data.draw(st.integers(0, 40))
    best = best_allotment(num_steps, step, communication, minimum)
    assert best.sum() == num_steps
    assert (best >= minimum).all()
    expected = predicted_times(
        one_by_one(num_steps, step, communication, minimum), step, communication
    ).max()
    assert predicted_times(best, step, communication).max() == pytest.approx(expected, rel=1e-12)


def test_among_equals_nothing_moves() -> None:
    current = np.array([3, 2, 2], np.int64)
    for _ in range(3):
        current = np.roll(current, 1)
        best = best_allotment(7, np.ones(3), np.zeros(3), np.ones(3, np.int64), current)
        assert (best == current).all()


@pytest.mark.parametrize(
    ("step", "minimum", "message"),
    [
        ([1.0, 1.0], [2, 2], "3 micro-steps are fewer than the minimum of 4"),
        ([math.inf, math.inf], [0, 0], "no worker is left"),
    ],
)
def test_what_cannot_be_allotted_is_refused(
    step: list[float], minimum: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        best_allotment(3, np.array(step), np.zeros(2), np.array(minimum, np.int64))


class Workers:
    """Workers of true speeds, with jitter from a seed."""

    def __init__(self, step: list[float], jitter: float, seed: int = 0) -> None:
        self.step = np.array(step)
        self.jitter = jitter
        self.random = np.random.default_rng(seed)

    def times(self) -> np.ndarray:
        noise = self.random.uniform(1 - self.jitter, 1 + self.jitter, len(self.step))
        return self.step * noise


@pytest.mark.parametrize("jitter", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("factor", [2.0, 4.0])
@pytest.mark.parametrize("seed", range(5))
def test_lasting_slowness_is_met_within_three_rounds(
    jitter: float, factor: float, seed: int
) -> None:
    allocator = StepAllocator(16, 4)
    workers = Workers([1, 1, 1, 1], jitter, seed)
    for _ in range(30):
        allocator.observe(workers.times())
    workers.step[2] = factor
    for _ in range(3):
        allocator.observe(workers.times())
    best = best_allotment(16, workers.step, np.zeros(4), np.ones(4, np.int64))
    worst = predicted_times(np.array(allocator.allotment), workers.step, np.zeros(4)).max()
    ideal = predicted_times(best, workers.step, np.zeros(4)).max()
    assert worst <= 1.3 * ideal, allocator.allotment


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_steps", [8, 16, 64, 256])
def test_noise_is_not_chased(num_steps: int, seed: int) -> None:
    allocator = StepAllocator(num_steps, 4)
    workers = Workers([1, 1, 1, 1], 0.2, seed)
    rounds = 1000
    for _ in range(rounds):
        allocator.observe(workers.times())
    moved = sum(decision.moved for decision in allocator.decisions)
    assert moved < rounds / 50, allocator.decisions


@pytest.mark.parametrize("factor", [0.01, 3.0, 1000.0])
def test_one_bad_round_moves_nothing(factor: float) -> None:
    allocator = StepAllocator(16, 4)
    workers = Workers([1, 1, 1, 1], 0.05)
    for i in range(60):
        times = workers.times()
        if i % 10 == 9:
            times[1] *= factor
        assert allocator.observe(times) is None, i


def test_a_straggler_that_recovers_gets_its_steps_back() -> None:
    allocator = StepAllocator(16, 4)
    workers = Workers([1, 4, 1, 1], 0.05)
    for _ in range(10):
        allocator.observe(workers.times())
    assert allocator.allotment[1] == 1
    workers.step[1] = 1
    for _ in range(5):
        allocator.observe(workers.times())
    assert allocator.allotment == (4, 4, 4, 4)


def test_a_worker_without_a_step_is_tried_now_and_then() -> None:
    allocator = StepAllocator(6, 3, minimum=0, probe_rounds=5)
    workers = Workers([1, 50, 1], 0.02)

    def run(rounds: int) -> None:
        for _ in range(rounds):
            times = workers.times()
            times[np.array(allocator.allotment) == 0] = np.nan
            allocator.observe(times)

    run(6)
    assert allocator.allotment == (3, 0, 3)
    run(14)
    assert sum(decision.after[1] == 1 for decision in allocator.decisions) >= 2
    workers.step[1] = 1
    run(15)
    assert allocator.allotment == (2, 2, 2)


def test_communication_counts() -> None:
    allocator = StepAllocator(8, 2)
    for _ in range(10):
        allocator.observe([1.0, 1.0], [0.0, 4.0])
    assert allocator.allotment == (6, 2)


def test_workers_leave_and_come_back() -> None:
    allocator = StepAllocator(8, 3)
    for _ in range(5):
        allocator.observe([1.0, 1.0, 1.0])
    allocator.leave(0)
    assert allocator.allotment == (0, 4, 4)
    for _ in range(5):
        assert allocator.observe([math.nan, 1.0, 1.0]) is None
    allocator.join(0)
    assert sorted(allocator.allotment) == [2, 3, 3]
    allocator.leave(1)
    allocator.leave(2)
    assert allocator.allotment == (8, 0, 0)
    with pytest.raises(ValueError, match="last worker"):
        allocator.leave(0)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_times_that_are_none_change_nothing(bad: float) -> None:
    allocator = StepAllocator(8, 2)
    for i in range(40):
        decision = allocator.observe([1.0, bad if i % 2 or i > 20 else 1.0], [bad, 0.1])
        assert decision is None
    assert allocator.allotment == (4, 4)


def test_nothing_moves_before_the_times_are_known() -> None:
    allocator = StepAllocator(8, 2)
    assert allocator.observe([1.0, 9.0]) is None
    assert allocator.observe([1.0, 9.0]) is None
    assert allocator.observe([1.0, 9.0]) is not None


def test_a_decision_says_what_it_saw_and_what_came_true() -> None:
    allocator = StepAllocator(8, 2)
    for _ in range(3):
        decision = allocator.observe([1.0, 3.0])
    assert isinstance(decision, Decision)
    assert decision.round == 3
    assert decision.step_seconds == pytest.approx((1.0, 3.0))
    assert (decision.before, decision.after, decision.moved) == ((4, 4), (6, 2), 2)
    assert decision.predicted_before == pytest.approx(12)
    assert decision.predicted_after == pytest.approx(6)
    assert math.isnan(decision.came_true)
    for i in range(4):
        allocator.observe([1.0 + i, 3.0])
    assert decision.rounds_since == 3
    assert decision.came_true == pytest.approx((6 + 12 + 18) / 3)
    assert "[4, 4] -> [6, 2]" in str(decision)
    assert "50% less" in str(decision)


def test_an_allotment_set_by_hand_is_gone_on_from() -> None:
    allocator = StepAllocator(8, 2)
    allocator.adopt([2, 6])
    assert allocator.allotment == (2, 6)
    for _ in range(5):
        allocator.observe([1.0, 1.0])
    assert allocator.allotment == (4, 4)
    for wrong in ([4, 5], [8], [9, -1]):
        with pytest.raises(ValueError, match="not"):
            allocator.adopt(wrong)
    with pytest.raises(ValueError, match="3 times for 2 workers"):
        allocator.observe([1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((1, 2), {}),
        ((0, 1), {}),
        ((4, 0), {}),
        ((4, 2), {"minimum": -1}),
        ((4, 2), {"threshold": 1}),
    ],
)
def test_numbers_out_of_range_are_refused(
    arguments: tuple[int, int], options: dict[str, float]
) -> None:
    with pytest.raises(ValueError, match=r"minimum|threshold"):
        StepAllocator(*arguments, **options)  # type: ignore[arg-type]


def test_fewer_steps_than_workers_need_a_minimum_of_zero() -> None:
    assert sorted(StepAllocator(1, 2, minimum=0).allotment) == [0, 1]
