"""What the workers of a program send to the servers, and what the servers do with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tf_rdmabatch.strategy import _tensorflow as private
from tf_rdmabatch.strategy.lifting import Dependence, hoist, sources
from tf_rdmabatch.strategy.parameters import Item, Pack, ParameterTable, unique_packs
from tf_rdmabatch.strategy.trace import Gathered, Reduction, ReplicaTrace, Snapshot, Update


@dataclass
class Contribution:
    """A tensor of the replicas that a server collects in each round.

    Parameters
    ----------
    value
        In the replica's graph.
    item
        Its description.
    order
        When the workers will want what comes of it: the number of the variable that is updated, in
        the order of use.
    """

    value: tf.Tensor
    item: Item
    order: int


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
        # What the workers push to and pull from.
        self.pushed: list[Pack] = []
        self.pulled: list[Pack] = []
        self.needed_snapshots: set[int] = set()
        # Variables whose value before the updates is needed.
        self.initial: dict[int, Any] = {}
        self._table = table
        self._by_source: dict[Any, Contribution] = {}
        self._conditions: dict[int, tf.Tensor] = {}

    def finish(self, inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor]) -> None:
        """Plan what is pushed, after the replica function was traced.

        Parameters
        ----------
        inputs
            Tensors of its graph that differ between the replicas.
        outputs
            What it returned.
        """
        self.depends = Dependence(self.trace.pending)
        # The replica's number and its part of the batch.
        self._varies = Dependence(t.op.name for t in inputs)
        captured = {id(external): internal for external, internal in self.trace.graph.captures}
        self._read = {
            captured[id(stand_in)].op.name: variable
            for variable, stand_in in self.trace.pulls.values()
            if id(stand_in) in captured
        }
        self._refuse_effects()
        order = {key: i for i, key in enumerate(self.trace.pulls)}
        last = len(order)
        for event in self.trace.events:
            if isinstance(event, Update):
                for tensor in self.tensors_of(event):
                    what = f"an update of {event.variable.name}"
                    number = order.get(id(event.variable), last)
                    self._need(tensor, event.variable, what, number, event.average)
        for output in outputs:
            if self.depends(output):
                self._need(output, None, "a result of the function", last, push=False)
        self._pack()

    def _pack(self) -> None:
        """Put what travels into packs: what is needed first comes first."""
        self.contributions.sort(key=lambda contribution: contribution.order)
        items = [contribution.item for contribution in self.contributions]
        self.pushed = self._table.pack(items, self.contributions)
        variables = [variable for variable, _ in self.trace.pulls.values()]
        new = [v for v in variables if v.place is None]
        packs = self._table.pack([v.item() for v in new], new)
        self._places = {id(v): (p, i) for p in packs for i, v in enumerate(p.members)}
        self.pulled = list(unique_packs([self.place(v)[0] for v in variables]))

    def place(self, variable: Any) -> tuple[Pack, int]:
        """Return the pack in which a variable is pulled, and its number there."""
        return variable.place or self._places[id(variable)]

    def serve(self) -> None:
        """Have the packs served, once it is sure that they are wanted."""
        new = [pack for pack in self.pulled if pack.members[0].place is None]
        self._table.serve([*self.pushed, *new])
        for pack in new:
            for i, variable in enumerate(pack.members):
                variable.place = pack, i

    @property
    def gathered(self) -> list[tf.Tensor]:
        """The tensors of which all replicas' rows are wanted."""
        return [s.value for s in self.trace.pending.values() if isinstance(s, Gathered)]

    def _refuse_effects(self) -> None:
        for op in self.trace.graph.get_operations():
            if private.is_stateful(op) and any(self.depends(i) for i in op.inputs):
                raise NotImplementedError(
                    f"{op.type} ({op.name}) uses a value that is known on the parameter servers "
                    "alone: an all-reduced tensor, or a variable after it was updated. Return it "
                    "from the function that strategy.run calls, and use it after that"
                )

    def tensors_of(self, update: Update) -> list[tf.Tensor]:
        """Return the replica's tensors among an update's arguments, and its condition."""
        flat = tf.nest.flatten([update.args, update.kwargs], expand_composites=True)
        tensors = [t for t in flat if private.is_graph_tensor(t)]
        return tensors if update.branch is None else [*tensors, self.condition(update.branch)]

    def condition(self, branch: Any) -> tf.Tensor:
        """Return whether a branch is taken, in the replica's graph."""
        if id(branch) not in self._conditions:
            predicate, taken_if, outer = private.condition_of(branch)
            predicate = hoist(predicate, self.trace.graph)
            with private.outside_dependencies(self.trace.graph):
                value = predicate if taken_if else tf.logical_not(predicate)
                if outer is not self.trace.graph:
                    value = tf.logical_and(value, self.condition(outer))
            self._conditions[id(branch)] = value
        return self._conditions[id(branch)]

    def leaves(self, tensor: tf.Tensor) -> Iterator[tf.Tensor]:
        """Yield what `tensor` is computed from on a server."""
        seen = set()
        stack = [tensor]
        while stack:
            current = stack.pop()
            if current.ref() in seen:
                continue
            seen.add(current.ref())
            if self.is_leaf(current):
                yield current
            else:
                stack.extend(sources(current))

    def is_leaf(self, tensor: tf.Tensor) -> bool:
        """Return whether a server gets a tensor, and does not compute it."""
        if tensor.op.name in self.trace.pending:
            return True
        return not self.depends(tensor) and tensor.op.type != "Const"

    def variable_read(self, leaf: tf.Tensor) -> Any:
        """Return the variable that a leaf is the pulled value of, if it is."""
        if leaf.op.type != "Identity":
            return None
        return self._read.get(leaf.op.inputs[0].op.name)

    def _need(
        self,
        tensor: tf.Tensor,
        variable: Any,
        what: str,
        order: int,
        average: bool = False,
        push: bool = True,
    ) -> None:
        """Have what `tensor` is computed from sent: to a variable's server, or for a result."""
        for leaf in self.leaves(tensor):
            source = self.trace.pending.get(leaf.op.name)
            read = self.variable_read(leaf)
            if isinstance(source, Snapshot):
                self.needed_snapshots.add(id(source))
            elif isinstance(source, Reduction | Gathered):
                self._refuse_pending(source.value, what)
                if isinstance(source, Reduction):
                    self._add(source.value, variable, False, what, order)
            elif read is not None:
                self.initial[id(read)] = read
            elif push:
                averaged = average and leaf.dtype.is_floating and self._varies(leaf)
                self._add(leaf, variable, not averaged, what, order)

    def _refuse_pending(self, value: tf.Tensor, what: str) -> None:
        if self.depends(value):
            raise NotImplementedError(
                f"{what} takes the sum of a tensor that depends on another sum or update of the "
                "same strategy.run: call strategy.run once for each of these steps"
            )

    def _add(self, value: tf.Tensor, variable: Any, first: bool, what: str, order: int) -> None:
        server = 0 if variable is None else variable.server
        key = (value.ref(), server, first)
        if key in self._by_source:
            self._by_source[key].order = min(order, self._by_source[key].order)
            return
        if variable is not None and not value.shape.is_fully_defined():
            value = self._shaped(value, variable.shape)
        if not value.shape.is_fully_defined():
            raise ValueError(
                f"{what} takes a tensor of shape {value.shape}: its shape has to be known, and the "
                "same in each step. Give it one with tf.ensure_shape, or use tensors of a fixed "
                "shape"
            )
        label = f"{'first' if first else 'sum'} for {what}"
        item = Item(label, server, value.dtype, value.shape, first)
        self._by_source[key] = Contribution(value, item, order)
        self.contributions.append(self._by_source[key])

    def _shaped(self, value: tf.Tensor, shape: tf.TensorShape) -> tf.Tensor:
        """Return a value that may have a variable's shape as one that has: a sparse gradient."""
        if value.shape.rank != shape.rank or not value.shape.is_compatible_with(shape):
            return value
        with private.outside_dependencies(self.trace.graph):
            return tf.ensure_shape(value, shape)

    def contribution(self, leaf: tf.Tensor, server: int) -> tuple[Contribution, bool]:
        """Return what a server collects for a leaf, and whether that is to be averaged."""
        source = self.trace.pending.get(leaf.op.name)
        if isinstance(source, Reduction):
            return self._by_source[source.value.ref(), server, False], source.mean
        first = self._by_source.get((leaf.ref(), server, True))
        if first is not None:
            return first, False
        return self._by_source[leaf.ref(), server, False], True
