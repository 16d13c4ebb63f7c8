"""What a round leaves behind, and what it does not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.strategy.cluster import MakeRunner

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("allotment", [(2, 2), (1, 3)])
def test_a_failed_round_leaves_nothing_behind(
    runners: MakeRunner, allotment: tuple[int, int]
) -> None:
    runner = runners("cluster", 4, 2, 1)
    found = runner.run("rounds_cases:failed_rounds", fail=True, allotment=allotment)
    expected = runner.run("rounds_cases:failed_rounds", fail=False, allotment=allotment)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, err_msg=name)


def test_kept_values_never_change(runners: MakeRunner) -> None:
    found = runners("cluster", 4, 2, 1).run("rounds_cases:kept_values", allotment=(1, 3))
    np.testing.assert_array_equal(found["least"], found["expected"])
    np.testing.assert_array_equal(found["most"], found["expected"])


def test_a_function_is_traced_once(runners: MakeRunner) -> None:
    found = runners("cluster", 4, 2, 1).run("rounds_cases:traces", allotment=(2, 2))
    assert found["first"] == 1
    assert found["later"] == 0
    assert found["sum"] == 4 * sum(range(64))
