"""Under ``consistency="asp"`` the programs of TensorFlow's asynchronous model run unchanged."""

from __future__ import annotations

import numpy as np
import pytest

from tests.strategy.cluster import MakeRunner

pytestmark = pytest.mark.timeout(300)


def test_scheduled_steps(runners: MakeRunner) -> None:
    found = runners("asp", 1, 2, 1).run("asp_cases:linear_regression")
    assert found["count"] == 60
    assert found["replicas"] == 1
    assert found["losses"].shape == (60,)
    assert found["losses"][-10:].mean() < 0.01 * found["losses"][:2].mean()
    np.testing.assert_allclose(found["weights"][:, 0], [1.0, -2.0, 3.0, 0.5], atol=0.05)


def test_failing_step(runners: MakeRunner) -> None:
    found = runners("asp", 1, 2, 1).run("asp_cases:failing_step")
    assert "a wrong step" in str(found["message"])
    assert found["next"] == 5
