"""What the workers of a program send to the servers, and what the servers do with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tf_rdmabatch.strategy import _tensorflow as private
from tf_rdmabatch.strategy.lifting import Lifter
from tf_rdmabatch.strategy.parameters import Parameter, ParameterTable
from tf_rdmabatch.strategy.trace import Reduction, ReplicaTrace, Snapshot, Update


@dataclass
class Contribution:
    """A tensor of the replicas that a server collects in each round.

    Parameters
    ----------
    value
        In the replica's graph.
    parameter
        What it is pushed to.
    what
        For errors.
    """

    value: tf.Tensor
    parameter: Parameter
    what: str


class Plan:
    """Finds out what has to be pushed so that the servers can do a trace's updates.

    Parameters
    ----------
    trace
        Of the replica function.
    table
        Of the strategy's parameters.
    """

    def __init__(self, trace: ReplicaTrace, table: ParameterTable) -> None:
        self.trace = trace
        self.contributions: list[Contribution] = []
        self.lifter: Lifter
        self.needed_snapshots: set[int] = set()
        self._table = table
        self._lender = table.lend()
        self._by_source: dict[Any, Contribution] = {}

    def finish(self) -> None:
        """Plan the contributions of all updates, after the replica function was traced."""
        self.lifter = Lifter(self.trace.pending)
        for event in self.trace.events:
            if isinstance(event, Update):
                for tensor in tensors_of(event):
                    for leaf in self.lifter.leaves(tensor):
                        self._contribute(leaf, event.variable)

    def _contribute(self, leaf: tf.Tensor, variable: Any) -> None:
        source = self.trace.pending.get(leaf.op.name)
        if isinstance(source, Snapshot):
            self.needed_snapshots.add(id(source))
        elif source is None:
            self._add(leaf, variable.server, first=True, what=f"what updates {variable.name}")
        elif isinstance(source, Reduction):
            self._add(source.value, variable.server, first=False, what=f"an update of {variable.name}")

    def _add(self, value: tf.Tensor, server: int, first: bool, what: str) -> None:
        key = (value.ref(), server, first)
        if key in self._by_source:
            return
        if not value.shape.is_fully_defined():
            raise ValueError(
                f"{what} is a tensor of shape {value.shape}: its shape has to be known and the same "
                "in each step. Give it one with tf.ensure_shape, or compute the update from tensors "
                "of a fixed shape"
            )
        label = f"{'first' if first else 'sum'} of {variable_label(what)}"
        parameter = self._lender.accumulator(label, server, value.dtype, value.shape, first)
        contribution = Contribution(value, parameter, what)
        self._by_source[key] = contribution
        self.contributions.append(contribution)

    def contribution(self, leaf: tf.Tensor, server: int) -> Contribution:
        """Return what a server collects for a leaf of an update's argument."""
        source = self.trace.pending.get(leaf.op.name)
        if isinstance(source, Reduction):
            return self._by_source[source.value.ref(), server, False]
        return self._by_source[leaf.ref(), server, True]

    def pulled_parameter(self, variable: Any) -> Parameter:
        """Return the parameter that a variable is pulled as."""
        return variable.parameter(self._table)  # type: ignore[no-any-return]


def variable_label(what: str) -> str:
    """Return a parameter's label."""
    return what.removeprefix("what updates ").removeprefix("an update of ")


def tensors_of(update: Update) -> Sequence[tf.Tensor]:
    """Return the replica's tensors among an update's arguments."""
    flat = tf.nest.flatten([update.args, update.kwargs], expand_composites=True)
    return [t for t in flat if private.is_graph_tensor(t)]
