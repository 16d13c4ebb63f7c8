"""PageRank of examples/experiments on a small graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from examples.experiments.graphs import load_partitions
from examples.experiments.pagerank_program import PageRank


def ranks(strategy: Any, folder: str, pieces: int, iterations: int) -> dict[str, Any]:
    """Ranks after some iterations, with an allotment that changes, and each one's residual."""
    graph = load_partitions(Path(folder))
    assert graph is not None
    program = PageRank(strategy, graph, pieces)
    residuals = []
    replicas = strategy.num_replicas_in_sync
    for number in range(iterations):
        strategy.allotment = (1 + number % 2, replicas - 1 - number % 2)
        residuals.append(program.iterate().numpy())
    result = {"ranks": program.ranks.numpy(), "residuals": np.asarray(residuals)}
    program.reset()
    return result | {"reset": program.ranks.numpy()}
