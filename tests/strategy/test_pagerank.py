"""PageRank by virtual replicas against SciPy's, and the command of the experiment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from examples.experiments.graphs import generate, partition
from examples.experiments.pagerank_reference import reference
from tests.strategy.cluster import MakeRunner

pytestmark = pytest.mark.timeout(300)
ITERATIONS = 60


@pytest.mark.parametrize("pieces", [1, 3])
def test_ranks_are_those_of_scipy(runners: MakeRunner, tmp_path: Path, pieces: int) -> None:
    graph = partition(generate("small", 1000, 8000), 4, tmp_path)
    found = runners("cluster", 4, 2, 1).run(
        "pagerank_cases:ranks", folder=str(tmp_path), pieces=pieces, iterations=ITERATIONS
    )
    expected = reference(graph, ITERATIONS)
    assert np.abs(found["ranks"] - expected).sum() < 1e-9
    assert found["ranks"].sum() == pytest.approx(1)
    before = np.abs(expected - reference(graph, ITERATIONS - 1)).sum()
    assert found["residuals"][-1] == pytest.approx(before, rel=1e-3)
    assert found["residuals"][0] > 0.1
    np.testing.assert_allclose(found["reset"], 1e-3)
