"""Results are those of MirroredStrategy with as many replicas, to float summation order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import MakeRunner

pytestmark = pytest.mark.timeout(600)


def compare(
    runners: MakeRunner, case: str, workers: int, servers: int, replicas: int, rtol: float = 2e-5, **options: Any
) -> None:
    found = runners("cluster", replicas, workers, servers).run(case, **options)
    expected = runners("mirrored", replicas).run(case, **options)
    assert sorted(found) == sorted(expected)
    for name, value in expected.items():
        scale = max(float(np.abs(value).max(initial=0)), 1e-6)
        np.testing.assert_allclose(found[name], value, rtol=rtol, atol=rtol * scale, err_msg=name)


@pytest.mark.parametrize(
    "optimizer", ["sgd", "momentum", "adam", "adamw", "adagrad", "rmsprop", "ftrl", "lion"]
)
def test_optimizer(runners: MakeRunner, optimizer: str) -> None:
    compare(runners, "keras_cases:fit", 2, 1, 4, optimizer=optimizer, allotment=[1, 3])


@pytest.mark.parametrize("clip", [None, "clipnorm", "global_clipnorm", "clipvalue"])
def test_custom_loop(runners: MakeRunner, clip: str | None) -> None:
    compare(runners, "keras_cases:loop", 2, 1, 4, clip=clip, allotment=[1, 3])


@pytest.mark.parametrize(
    "options",
    [
        {"layers": "batch normalization", "evaluate": False},
        {"layers": "dropout"},
        {"layers": "constraint"},
        {"layers": "regularizer"},
        {"schedule": True},
        {"schedule": True, "optimizer": "AdamW"},
        {"options": {"use_ema": True, "ema_momentum": 0.9}},
        {"options": {"use_ema": True, "ema_momentum": 0.9, "ema_overwrite_frequency": 5}},
        {"policy": "mixed_bfloat16"},
        {"policy": "mixed_float16"},
        {"steps_per_execution": 4},
        {"metrics": ["mse", "RootMeanSquaredError", "R2Score"]},
    ],
    ids=str,
)
def test_feature(runners: MakeRunner, options: dict[str, Any]) -> None:
    compare(runners, "keras_cases:features", 2, 1, 4, allotment=[1, 3], **options)
