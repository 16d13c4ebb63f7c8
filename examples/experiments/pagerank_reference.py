"""PageRank by SciPy, which the distributed one is compared with."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from examples.experiments.graphs import Floats, Partitions

DAMPING = 0.85


def reference(graph: Partitions, iterations: int) -> Floats:
    """Return the ranks after so many iterations, by SciPy."""
    parts = zip(graph.ranges[:-1], graph.bounds[:-1], graph.bounds[1:], strict=True)
    sources = np.concatenate([first + graph.sources[begin:end] for first, begin, end in parts])
    inverse = np.asarray(graph.inverse)
    matrix = scipy.sparse.csr_matrix(
        (inverse[sources], (np.asarray(graph.targets), sources)), (graph.nodes, graph.nodes)
    )
    dangling = inverse == 0
    ranks: Floats = np.full(graph.nodes, 1 / graph.nodes)
    for _ in range(iterations):
        spread = DAMPING * ranks[dangling].sum() + 1 - DAMPING
        ranks = DAMPING * (matrix @ ranks) + spread / graph.nodes
    return ranks
