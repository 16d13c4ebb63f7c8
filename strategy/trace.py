"""What a replica function does, found out by tracing it once.

Reads of server variables become pulls, all-reduces and assignments become pushes, and what happens
to a variable becomes an update that its server applies once a round.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tf_rdmabatch.strategy import _tensorflow as private
from tf_rdmabatch.strategy.lifting import hoist, sources


class _Active(threading.local):
    trace: ReplicaTrace | None = None


_active = _Active()


def current() -> ReplicaTrace:
    """Return the trace that the current graph is part of, which there has to be."""
    trace = active()
    if trace is None:
        raise RuntimeError("this is for replicas: call it in a function that strategy.run calls")
    return trace


def active() -> ReplicaTrace | None:
    """Return the trace that the current graph is part of, if any."""
    trace = _active.trace
    if trace is not None and trace.covers(private.current_graph()):
        return trace
    return None


@dataclass
class Reduction:
    """A value whose sum over the replicas is known on the servers alone.

    Parameters
    ----------
    value
        A replica's part.
    mean
        Whether the sum is divided by the number of replicas.
    """

    value: tf.Tensor
    mean: bool


@dataclass
class Gathered:
    """All replicas' rows of a value, which are known outside of the replicas alone.

    Parameters
    ----------
    value
        A replica's part.
    """

    value: tf.Tensor


@dataclass
class Snapshot:
    """A variable's value between two updates of the round."""

    variable: Any


@dataclass
class Update:
    """What a server does with a variable in each round.

    Parameters
    ----------
    variable
        On one of the servers.
    function
        Called with it, `args` and `kwargs` on its server.
    args, kwargs
        Tensors of the replica among them.
    branch
        The graph of the branch of a tf.cond that it is in, or None.
    average
        Whether tensors that differ between the replicas are averaged, or the first replica's taken.
    """

    variable: Any
    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: dict[str, Any] = field(default_factory=dict)
    branch: Any = None
    average: bool = False


class ReplicaTrace:
    """Collects what a replica function does while its graph is built.

    Parameters
    ----------
    replicas
        Their number.
    """

    def __init__(self, replicas: int) -> None:
        self.replicas = replicas
        self.graph: Any = None
        self.replica: Any = None
        # Of the program that calls the replica function in a loop.
        self.program_graph: Any = None
        # A stand-in in the program's graph for each pulled variable, in the order of use.
        self.pulls: dict[int, tuple[Any, tf.Tensor]] = {}
        # In program order: updates, and snapshots that later ops may need.
        self.events: list[Update | Snapshot] = []
        # Name of the placeholder's op in the replica's graph: what it stands for.
        self.pending: dict[str, Reduction | Gathered | Snapshot] = {}
        # Variables that were written: the value that this replica sees from then on.
        self._written: dict[int, tf.Tensor] = {}
        # How variables are cut that were read, by their shape: their gradients are cut alike.
        self._cuts: dict[tuple[int, ...], Sequence[int]] = {}
        # Name of the op that joins the parts of such a gradient's sum: the parts.
        self._joined: dict[str, tuple[Sequence[int], list[tf.Tensor]]] = {}

    @contextlib.contextmanager
    def activate(self, program_graph: Any, graph: Any, replica: tf.Tensor) -> Iterator[None]:
        """Trace what is called within: `graph` is the replica's, `replica` its number."""
        self.program_graph, self.graph, self.replica = program_graph, graph, replica
        previous, _active.trace = _active.trace, self
        try:
            yield
        finally:
            _active.trace = previous

    def covers(self, graph: Any) -> bool:
        """Return whether `graph` is the replica's, or nested in it."""
        while graph is not None and graph is not self.graph:
            graph = getattr(graph, "outer_graph", None)
        return graph is not None

    def read(self, variable: Any) -> tf.Tensor:
        """Return a server variable's value, as a read that tapes know."""
        graph = private.current_graph()
        if graph is self.graph:
            value = self._value(variable)
        elif private.is_control_flow_graph(graph):
            with private.outside_dependencies(graph.outer_graph):
                value = self.read(variable)
        else:
            spec = tf.TensorSpec(variable.shape, variable.dtype)
            value = private.late_capture(
                graph, ("rdmabatch", id(variable)), variable.read_value, spec
            )
        return private.record_read(value, variable.gradient_sources())

    def _value(self, variable: Any) -> tf.Tensor:
        shards = getattr(variable, "shards", None)
        if shards is not None:
            self._cuts[tuple(variable.shape)] = variable.bounds
            with private.outside_dependencies(self.graph):
                return tf.concat([self._value(shard) for shard in shards], 0)
        value = self._written.get(id(variable))
        return self._pull(variable) if value is None else value

    def _pull(self, variable: Any) -> tf.Tensor:
        if id(variable) not in self.pulls:
            with private.outside_dependencies(self.program_graph):
                stand_in = private.placeholder(variable.dtype, variable.shape, "pulled")
            self.pulls[id(variable)] = variable, stand_in
        return self.pulls[id(variable)][1]

    def all_reduce(self, reduce_op: Any, value: Any) -> Any:
        """Return what stands for the sum (or mean) of all replicas' `value`."""
        value = self._hoist(value)
        mean = reduce_op == tf.distribute.ReduceOp.MEAN
        if isinstance(value, tf.IndexedSlices):
            # As TensorFlow's other strategies: all replicas' slices, in their order.
            values = self.gather(value.values)
            values = values / self.replicas if mean else values
            return tf.IndexedSlices(values, self.gather(value.indices), value.dense_shape)
        value = tf.convert_to_tensor(value)
        bounds = self._cuts.get(tuple(value.shape)) if value.shape.rank else None
        if bounds is None:
            return self._pend(Reduction(value, mean), value.dtype, value.shape)
        with private.outside_dependencies(self.graph):
            values = [value[first:end] for first, end in itertools.pairwise(bounds)]
            parts = [self._pend(Reduction(v, mean), v.dtype, v.shape) for v in values]
            whole = tf.concat(parts, 0)
        self._joined[whole.op.name] = bounds, parts
        return whole

    def known_part(self, value: Any, bounds: Sequence[int], index: int) -> tf.Tensor | None:
        """Return a part of what `all_reduce` joined from parts, None for other tensors."""
        if not private.is_graph_tensor(value):
            return None
        while value.op.type in ("Identity", "IdentityN"):
            value = sources(value)[0]
        joined, parts = self._joined.get(value.op.name, ((), []))
        return parts[index] if tuple(joined) == tuple(bounds) else None

    def gather(self, value: tf.Tensor) -> tf.Tensor:
        """Return what stands for the rows of all replicas' `value`."""
        value = self._hoist(value)
        return self._pend(Gathered(value), value.dtype, [None, *value.shape[1:]])

    def update(self, variable: Any, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Have the variable's server call ``function(variable, *args, **kwargs)``."""
        branch = self._branch(variable)
        args, kwargs = self.hoist((list(args), dict(kwargs or {})))
        self.events.append(Update(variable, function, args, kwargs, branch, average=True))
        self._snapshot(variable)

    def assign(self, variable: Any, method: str, value: Any) -> tf.Tensor:
        """Have the server assign what the replicas' values aggregate to.

        Returns
        -------
        tf.Tensor
            The variable's value from now on, for this replica.
        """
        branch = self._branch(variable)
        value = tf.convert_to_tensor(value, variable.dtype)
        current = self.read(variable)
        aggregation = variable.aggregation
        sums = (tf.VariableAggregation.SUM, tf.VariableAggregation.MEAN)
        if aggregation in sums:
            mean = aggregation == tf.VariableAggregation.MEAN
            if mean and not variable.dtype.is_floating:
                raise ValueError(
                    f"{variable.name} is not a float and its aggregation is MEAN: assign it "
                    "outside of strategy.run, or create it with another dtype or aggregation"
                )
            reduction = Reduction(self._hoist(value), mean)
            sent = self._pend(reduction, value.dtype, value.shape)
        else:
            sent = self._hoist(value)
        self.events.append(
            Update(variable, lambda v, x: getattr(v, method)(x), [sent], branch=branch)
        )
        if aggregation in sums or branch is not None:
            return self._snapshot(variable)
        # The first replica's value wins, and until the round's end each replica sees its own.
        sign = {"assign_add": 1, "assign_sub": -1}.get(method)
        local = value if sign is None else current + sign * value
        self._written[id(variable)] = tf.broadcast_to(local, variable.shape)
        return self._written[id(variable)]

    def _snapshot(self, variable: Any) -> tf.Tensor:
        snapshot = Snapshot(variable)
        self.events.append(snapshot)
        token = self._pend(snapshot, variable.dtype, variable.shape)
        self._written[id(variable)] = token
        return token

    def _pend(self, what: Reduction | Gathered | Snapshot, dtype: Any, shape: Any) -> tf.Tensor:
        with private.outside_dependencies(self.graph):
            token = private.placeholder(dtype, shape, "pending")
        self.pending[token.op.name] = what
        return token

    def hoist(self, structure: Any) -> Any:
        """Return what is in a structure, computed in the replica's graph."""
        return tf.nest.map_structure(self._hoist, structure)

    def _hoist(self, value: Any) -> Any:
        """Return `value` computed in the replica's graph, if it is of a branch in it."""
        flat = tf.nest.flatten(value, expand_composites=True)
        if not any(private.is_graph_tensor(t) and t.graph is not self.graph for t in flat):
            return value
        hoisted = [hoist(t, self.graph) if private.is_graph_tensor(t) else t for t in flat]
        return tf.nest.pack_sequence_as(value, hoisted, expand_composites=True)

    def _branch(self, variable: Any) -> Any:
        """Return the branch of a tf.cond that the current graph is, None outside of them."""
        graph = current = private.current_graph()
        while graph is not self.graph:
            if not private.is_branch(graph):
                raise NotImplementedError(
                    f"{variable.name} is written inside a nested tf.function or a loop within "
                    "strategy.run: write it in the replica function itself (remove the inner "
                    "@tf.function, move it out of the loop)"
                )
            graph = graph.outer_graph
        return None if current is self.graph else current
