"""What users do with Keras gives the results of MirroredStrategy, or of no strategy at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.strategy.cluster import MakeRunner, compare

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize(
    ("case", "options"),
    [
        ("fit_cases:callbacks", {}),
        ("fit_cases:schedules", {}),
        ("fit_cases:inputs", {}),
        ("fit_cases:batch_methods", {}),
        ("fit_cases:overflow", {}),
        ("fit_cases:running", {"run_eagerly": True}),
        ("model_cases:function_in_run", {}),
        ("model_cases:structured", {}),
        ("model_cases:ragged", {}),
        ("model_cases:portable", {}),
        ("model_cases:layers", {"model": "recurrent"}),
        ("model_cases:layers", {"model": "attention"}),
        ("model_cases:layers", {"model": "batch"}),
        ("model_cases:layers", {"model": "group"}),
        ("model_cases:layers", {"model": "spectral"}),
        ("legacy_cases:callbacks", {}),
    ],
    ids=str,
)
def test_mirrored(runners: MakeRunner, case: str, options: dict[str, Any]) -> None:
    compare(runners, case, allotment=[1, 3], **options)


@pytest.mark.parametrize(
    ("case", "options"),
    [
        ("fit_cases:metrics", {}),
        ("fit_cases:callbacks", {"steps_per_execution": 3}),
        ("fit_cases:running", {"steps_per_execution": 3}),
    ],
    ids=str,
)
def test_plain(runners: MakeRunner, case: str, options: dict[str, Any]) -> None:
    """What MirroredStrategy cannot run, or takes very long for, on batches that are cut evenly."""
    compare(runners, case, reference="plain", rtol=1e-4, allotment=[1, 3], **options)


def test_dataset_of_unknown_size(runners: MakeRunner) -> None:
    """Its end takes no step: the next epoch goes on as after a dataset of known size."""
    found = runners("cluster", 4, 2, 1).run("fit_cases:unknown_size", allotment=[1, 3])
    assert found["unknown steps"] == found["known steps"] == 18
    np.testing.assert_allclose(found["unknown"], found["known"], rtol=1e-6)
    np.testing.assert_allclose(found["unknown loss"], found["known loss"], rtol=1e-6)


def test_xla(runners: MakeRunner) -> None:
    found = runners("cluster", 4, 2, 1).run("fit_cases:compiled")
    np.testing.assert_allclose(found["predicted"], found["reference"], rtol=1e-5, atol=1e-6)
    assert "use model.compile(..., jit_compile=False)" in str(found["message"])
