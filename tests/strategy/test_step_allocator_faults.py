"""The step allocator where reports stop, clocks jump, and slowness comes and goes."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from tf_rdmabatch.strategy.step_allocator import StepAllocator

EVEN = (4, 4, 4, 4)


def settled() -> StepAllocator:
    """Return an allocator that has seen four equal workers."""
    allocator = StepAllocator(16, 4)
    for _ in range(10):
        allocator.observe([1.0, 1.0, 1.0, 1.0])
    assert allocator.allotment == EVEN
    return allocator


def test_reports_of_all_that_stop_change_nothing() -> None:
    allocator = settled()
    for _ in range(50):
        assert allocator.observe([math.nan] * 4) is None
    assert allocator.allotment == EVEN


def test_a_worker_whose_reports_stop_keeps_its_estimate_and_others_move_on() -> None:
    allocator = settled()
    for _ in range(3):
        allocator.observe([1.0, math.nan, 1.0, 4.0])
    assert allocator.allotment == (5, 5, 5, 1)
    for _ in range(3):
        allocator.observe([1.0, 2.0, 1.0, 4.0])
    assert allocator.allotment[1] < 5


def test_a_worker_that_never_reports_is_waited_for_but_not_for_ever() -> None:
    allocator = StepAllocator(16, 4)
    decisions = [allocator.observe([1.0, 1.0, math.nan, 4.0]) for _ in range(20)]
    first = next(i for i, decision in enumerate(decisions, 1) if decision is not None)
    assert first == 10
    assert allocator.allotment == (5, 5, 5, 1)


@pytest.mark.parametrize("wrong", [-1e300, -1.0, 0.0, 5e-324, 1e7, 1e300, 1e308])
def test_what_only_a_clock_that_jumps_can_say_is_no_time(wrong: float) -> None:
    allocator = settled()
    for _ in range(20):
        assert allocator.observe([1.0, wrong, 1.0, 1.0], [0.1, wrong, 0.1, 0.1]) is None
    assert allocator.allotment == EVEN


@pytest.mark.parametrize("wrong", [1e-8, 3600.0, 1e5])
def test_a_clock_that_jumps_now_and_then_moves_nothing(wrong: float) -> None:
    allocator = settled()
    for number in range(60):
        time = wrong if number % 7 == 6 else 1.0
        assert allocator.observe([1.0, time, 1.0, 1.0], [0.1, 0.1, time / 10, 0.1]) is None


def test_one_that_goes_on_jumping_is_followed_and_forgiven() -> None:
    allocator = settled()
    for _ in range(3):
        allocator.observe([1.0, 1e5, 1.0, 1.0])
    assert allocator.allotment == (5, 1, 5, 5)
    for _ in range(3):
        allocator.observe([1.0, 1.0, 1.0, 1.0])
    assert allocator.allotment == EVEN


def test_fewer_steps_than_workers_find_the_fast_ones() -> None:
    allocator = StepAllocator(3, 6, minimum=0, probe_rounds=10)
    true = np.array([4.0, 4.0, 4.0, 1.0, 1.0, 1.0])
    rounds = []
    for _ in range(200):
        working = np.array(allocator.allotment) > 0
        rounds.append(float(true[working].max()))
        allocator.observe(np.where(working, true, np.nan))
        assert sum(allocator.allotment) == 3
    # Trying the slow ones costs a slow round now and then.
    assert np.median(rounds[100:]) == 1
    assert np.mean(rounds[100:]) < 2


def test_trying_many_does_not_keep_others_from_moving() -> None:
    allocator = StepAllocator(64, 40, minimum=0, probe_rounds=5)
    true = np.ones(40)
    true[20:] = 100.0

    def run(rounds: int) -> None:
        for _ in range(rounds):
            allocator.observe(np.where(np.array(allocator.allotment) > 0, true, np.nan))

    run(30)
    true[0] = 3.0
    for _ in range(3):
        run(1)
    while sum(allocator.allotment[20:]):
        run(1)
    assert allocator.allotment[0] <= 2
    assert len([d for d in allocator.decisions if sum(d.after[20:])]) < 15


def test_one_that_is_tried_and_says_nothing_is_not_taken_for_fast() -> None:
    allocator = StepAllocator(16, 4, minimum=0, probe_rounds=5)
    for _ in range(5):
        allocator.observe([1.0, 1.0, 1.0, 100.0])
    assert allocator.allotment[3] == 0
    for _ in range(30):
        allocator.observe([1.0, 1.0, 1.0, math.nan])
        assert allocator.allotment[3] <= 1


def test_an_allotment_set_by_hand_in_each_round_is_no_obstacle() -> None:
    allocator = settled()
    for number in range(40):
        allocator.adopt([1, 5, 5, 5] if number % 2 else [5, 1, 5, 5])
        allocator.observe([1.0, 1.0, 1.0, 1.0])
        assert sum(allocator.allotment) == 16
    allocator.observe([1.0, 1.0, 1.0, 1.0])
    assert allocator.allotment == EVEN


def test_those_who_leave_while_slow_take_nothing_with_them() -> None:
    allocator = settled()
    for _ in range(3):
        allocator.observe([1.0, 4.0, 1.0, 1.0])
    allocator.leave(1)
    assert allocator.allotment[1] == 0
    assert sum(allocator.allotment) == 16
    for _ in range(30):
        assert allocator.observe([1.0, math.nan, 1.0, 1.0]) is None
    allocator.join(1)
    for _ in range(4):
        allocator.observe([1.0, 1.0, 1.0, 1.0])
    assert allocator.allotment == EVEN


def test_as_many_times_as_workers() -> None:
    with pytest.raises(ValueError, match="2 times of communication for 4 workers"):
        settled().observe([1.0] * 4, [1.0] * 2)


def slow_periods(length: int, pause: int, count: int) -> Iterator[list[float]]:
    """Yield times of periods in which a worker is four times slower, each time another."""
    for number in range(count):
        yield from [[1.0, 1.0, 1.0, 1.0]] * pause
        times = [1.0, 1.0, 1.0, 1.0]
        times[number % 4] = 4.0
        yield from [times] * length


def test_where_slowness_comes_and_goes_it_is_followed_at_once() -> None:
    allocator = settled()
    for times in slow_periods(length=8, pause=8, count=4):
        allocator.observe(times)
    for _ in range(8):
        allocator.observe([1.0, 1.0, 1.0, 1.0])
    assert allocator.allotment == EVEN
    allocator.observe([1.0, 1.0, 4.0, 1.0])
    assert allocator.allotment == (5, 5, 1, 5)
    allocator.observe([1.0, 1.0, 1.0, 1.0])
    assert allocator.allotment == EVEN


def test_where_it_is_gone_in_the_next_round_it_is_not() -> None:
    allocator = settled()
    for times in slow_periods(length=8, pause=8, count=4):
        allocator.observe(times)
    for times in slow_periods(length=1, pause=8, count=4):
        allocator.observe(times)
    made = len(allocator.decisions)
    for times in slow_periods(length=1, pause=8, count=20):
        allocator.observe(times)
    assert len(allocator.decisions) == made
    assert allocator.allotment == EVEN


@pytest.mark.parametrize(("length", "most"), [(5, 1.33), (10, 1.20)])
def test_changing_slowness_costs_little_more_than_it_has_to(length: int, most: float) -> None:
    random = np.random.default_rng(length)
    allocator = StepAllocator(16, 4)
    spent = least = 0.0
    for times in slow_periods(length=length, pause=length, count=600 // (2 * length)):
        step = np.array(times) * np.exp(random.normal(0, 0.02, 4))
        spent += float((step * allocator.allotment).max())
        least += 16 / float((1 / step).sum())
        allocator.observe(step)
    assert spent / least < most
