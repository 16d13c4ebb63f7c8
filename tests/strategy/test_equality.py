"""Results are those of MirroredStrategy with as many replicas, to float summation order."""

from __future__ import annotations

from typing import Any

import pytest

from tests.strategy.cluster import MakeRunner, compare

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize(
    "optimizer", ["sgd", "momentum", "adam", "adamw", "adagrad", "rmsprop", "ftrl", "lion"]
)
def test_optimizer(runners: MakeRunner, optimizer: str) -> None:
    compare(runners, "keras_cases:fit", optimizer=optimizer, allotment=[1, 3])


@pytest.mark.parametrize("clip", [None, "clipnorm", "global_clipnorm", "clipvalue"])
def test_custom_loop(runners: MakeRunner, clip: str | None) -> None:
    compare(runners, "keras_cases:loop", clip=clip, allotment=[1, 3])


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
        {"policy": "mixed_bfloat16"},
        {"policy": "mixed_float16"},
        {"metrics": ["mse", "RootMeanSquaredError", "R2Score"]},
    ],
    ids=str,
)
def test_feature(runners: MakeRunner, options: dict[str, Any]) -> None:
    compare(runners, "keras_cases:features", allotment=[1, 3], **options)


@pytest.mark.parametrize(
    "options",
    [
        {"options": {"use_ema": True, "ema_momentum": 0.9, "ema_overwrite_frequency": 5}},
        {"options": {"gradient_accumulation_steps": 4}},
        {"steps_per_execution": 4},
    ],
    ids=str,
)
def test_what_mirrored_strategy_cannot(runners: MakeRunner, options: dict[str, Any]) -> None:
    """With a batch that all replicas share evenly the result is that of no strategy at all."""
    case = "keras_cases:features"
    compare(runners, case, reference="plain", rtol=1e-4, allotment=[1, 3], **options)


# Those that need the same cluster follow each other.
@pytest.mark.parametrize("servers", [1, 2])
def test_loop_on_two_servers(runners: MakeRunner, servers: int) -> None:
    compare(runners, "loop_cases:reductions", 2, servers, allotment=[3, 1])


@pytest.mark.parametrize(
    ("workers", "servers", "replicas", "allotment", "change"),
    [
        (2, 2, 4, [0, 4], [[2, 2], [1, 3]]),
        (1, 1, 2, [2], None),
        (1, 2, 4, [4], None),
        (2, 1, 4, [2, 2], [[1, 3], [4, 0], [3, 1]]),
        (3, 1, 4, [2, 1, 1], [[1, 1, 2], [0, 3, 1]]),
        (3, 2, 4, [1, 1, 2], None),
    ],
)
def test_cluster(
    runners: MakeRunner,
    workers: int,
    servers: int,
    replicas: int,
    allotment: list[int],
    change: list[list[int]] | None,
) -> None:
    compare(
        runners, "keras_cases:fit", workers, servers, replicas, allotment=allotment, change=change
    )


def test_uneven_micro_batches(runners: MakeRunner) -> None:
    """6 replicas share 64 examples: 11 each, and 9."""
    compare(runners, "keras_cases:loop", 3, 2, 6, allotment=[1, 2, 3])


@pytest.mark.parametrize("source", ["dataset", "numpy", "weights", "split", "tensors"])
@pytest.mark.parametrize("rows", [1000, 449])
def test_last_batch(runners: MakeRunner, rows: int, source: str) -> None:
    compare(runners, "keras_cases:partial_batch", rows=rows, source=source, allotment=[1, 3])


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "Adagrad"])
def test_embedding(runners: MakeRunner, optimizer: str) -> None:
    compare(runners, "keras_cases:embedding", optimizer=optimizer, allotment=[1, 3])


@pytest.mark.parametrize("case", ["subclassed", "batch_logs"])
def test_model(runners: MakeRunner, case: str) -> None:
    compare(runners, f"keras_cases:{case}", allotment=[1, 3])


@pytest.mark.parametrize("case", ["raw", "reductions", "saved", "saved_metric", "written_by_chief"])
def test_loop(runners: MakeRunner, case: str) -> None:
    compare(runners, f"loop_cases:{case}", allotment=[1, 3])


def test_datasets_of_each_worker(runners: MakeRunner) -> None:
    found = runners("cluster", 4, 2, 1).run("loop_cases:worker_datasets", allotment=[1, 3])
    assert found["seen"].tolist() == [1] * 96
    assert found["eager"] == 16


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_keras_2(runners: MakeRunner, optimizer: str) -> None:
    compare(runners, "keras_cases:legacy_fit", optimizer=optimizer, allotment=[1, 3])
