"""PageRank as a loop of synchronous rounds: ranks on the server, edges as virtual replicas.

A round is an iteration of L. Page, S. Brin, R. Motwani and T. Winograd, The PageRank Citation
Ranking, 1999: a node's rank goes to its successors in equal parts, that of nodes without successors
(dangling mass) to all nodes. The ranks sum to 1, so what is not moved along edges is dangling:
``new = damping * moved + (1 - damping * sum(moved)) / nodes``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from examples.experiments.graphs import Partitions
from examples.experiments.pagerank_reference import DAMPING


class PageRank:
    """The ranks of a graph's nodes, float64: float32 sums would be off by more than 1e-6.

    Replica i has part i of the edges. Each worker maps the files of all parts into its memory and
    touches those of its replicas, so any replica can run anywhere: on a cluster the folder has to
    be at the same path on all workers, shared or copied.

    Parameters
    ----------
    strategy
        With as many virtual replicas as the graph has parts.
    graph
        Its partitions.
    pieces
        Into how many ranges of nodes a replica's result is cut: each travels as soon as it is
        there, while the next one is computed.

    Raises
    ------
    ValueError
        The numbers of parts and replicas differ.
    """

    def __init__(self, strategy: Any, graph: Partitions, pieces: int = 1) -> None:
        parts, replicas = len(graph.ranges) - 1, strategy.num_replicas_in_sync
        if parts != replicas:
            raise ValueError(f"the graph has {parts} parts, and the strategy {replicas} replicas")
        self._strategy, self._graph = strategy, graph
        firsts = np.arange(pieces, dtype=np.int64) * graph.nodes // pieces
        self._firsts = [*firsts.tolist(), graph.nodes]
        self._bounds = tf.constant(graph.piece_bounds(firsts))
        self._ranges = tf.constant(graph.ranges, tf.int64)
        with strategy.scope():
            self.ranks = tf.Variable(self._start, trainable=False, name="ranks")
            with strategy.extended.colocate_vars_with(self.ranks):
                self._residual = tf.Variable(tf.zeros([], tf.float64), trainable=False)

    def _start(self) -> tf.Tensor:
        nodes = self._graph.nodes
        return tf.fill([nodes], tf.constant(1 / nodes, tf.float64))

    def reset(self) -> None:
        """Begin anew: all nodes have the same rank."""
        self.ranks.assign(self._start())

    @tf.function
    def iterate(self) -> tf.Tensor:
        """Do an iteration and return its residual: the L1 distance between old and new ranks."""
        self._strategy.run(self._replica)
        return self._residual.read_value()

    def _replica(self) -> None:
        context = tf.distribute.get_replica_context()
        part = context.replica_id_in_sync_group
        first, last = self._ranges[part], self._ranges[part + 1]
        inverse = self._mapped("inverse", tf.float64, self._graph.nodes)
        shares = self.ranks[first:last] * inverse[first:last]
        sources = self._mapped("sources", tf.int32, self._graph.edges)
        targets = self._mapped("targets", tf.int32, self._graph.edges)
        moved = []
        for piece, (low, high) in enumerate(zip(self._firsts, self._firsts[1:], strict=False)):
            begin, end = self._bounds[part, piece], self._bounds[part, piece + 1]
            values = tf.gather(shares, sources[begin:end])
            nodes = targets[begin:end] - low if low else targets[begin:end]
            moved.append(tf.math.unsorted_segment_sum(values, nodes, high - low))
        moved = context.all_reduce(tf.distribute.ReduceOp.SUM, moved)
        self._strategy.extended.update(self.ranks, self._move, args=tuple(moved))

    def _mapped(self, name: str, dtype: tf.DType, count: int) -> tf.Tensor:
        """Return a file's values, in the memory of the worker that this runs on."""
        path = str((self._graph.folder / f"{name}.bin").absolute())
        return tf.raw_ops.ImmutableConst(dtype=dtype, shape=[count], memory_region_name=path)

    def _move(self, ranks: Any, *moved: tf.Tensor) -> None:
        """Update the ranks, on their server."""
        total = DAMPING * (moved[0] if len(moved) == 1 else tf.concat(moved, 0))
        rest = (1 - tf.reduce_sum(total)) / self._graph.nodes
        change = total + (rest - ranks.read_value())
        self._residual.assign(tf.reduce_sum(tf.abs(change)))
        ranks.assign_add(change)
