"""The variables of a synchronous strategy: on a server, or on each worker its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_rdmabatch.strategy import _tensorflow as private
from tf_rdmabatch.strategy import trace as traces
from tf_rdmabatch.strategy.parameters import Item, Pack
from tf_rdmabatch.strategy.sharded import refuse_in_update_of_shard
from tf_rdmabatch.strategy.transfer import to_chief, to_server


class ServerVariable(private.ps_values.CachingVariable):  # type: ignore[misc]
    """A variable on a parameter server.

    In a replica a read is a pull and an assignment a push, applied by the server once a round;
    elsewhere both go to the server at once.

    Parameters
    ----------
    variable
        On the server.
    server
        The server's number.
    aggregation
        How the replicas' assignments become one.
    replicas
        Their number.
    """

    def __init__(
        self,
        variable: tf.Variable,
        server: int,
        aggregation: tf.VariableAggregation,
        replicas: int = 1,
    ) -> None:
        super().__init__(variable)
        self.server = server
        # The variable that this is a shard of.
        self.whole: Any = None
        # The pack that workers pull, and the number in it.
        self.place: tuple[Pack, int] | None = None
        self._replicas = replicas
        self._aggregation = aggregation

    @property
    def aggregation(self) -> tf.VariableAggregation:
        """How the replicas' assignments become one."""
        return self._aggregation

    @property
    def synchronization(self) -> tf.VariableSynchronization:
        """Always at the write."""
        return tf.VariableSynchronization.ON_WRITE

    def item(self) -> Item:
        """Return what workers pull."""
        if not self.shape.is_fully_defined():
            raise ValueError(
                f"{self.name} has shape {self.shape}: a variable that replicas read or write needs "
                "a shape that is known and stays; create it without shape=, or use it outside of "
                "strategy.run"
            )
        return Item(self.name, self.server, self.dtype, self.shape)

    def gradient_sources(self) -> list[tuple[Any, Callable[[Any], Any]]]:
        """Return what a read is a read of, and what turns its gradient into theirs."""
        sources: list[tuple[Any, Callable[[Any], Any]]] = [(self._v, lambda gradient: gradient)]
        if self.whole is not None:
            whole, _ = self.whole.gradient_sources()[0]
            sources.append((whole, lambda gradient: self.whole.whole_gradient(self, gradient)))
        return sources

    @property
    def values(self) -> tuple[ServerVariable, ...]:
        """Each replica's variable, as a mirrored one has them: all are this one."""
        return (self,) * self._replicas

    def read_value(self) -> tf.Tensor:
        """Return the value; in a replica the one that the round began with."""
        trace = traces.active()
        return self._v.read_value() if trace is None else trace.read(self)

    def value(self) -> tf.Tensor:
        """Return the value; see `read_value`."""
        trace = traces.active()
        return self._v.value() if trace is None else trace.read(self)

    def numpy(self) -> Any:
        """Return the value as an array."""
        if not tf.executing_eagerly():
            return self._v.numpy()
        return to_chief(self._v.read_value())

    def sparse_read(self, indices: Any, name: str | None = None) -> tf.Tensor:
        """Return rows of the value."""
        trace = traces.active()
        if trace is None:
            return self._v.sparse_read(indices, name=name)
        return tf.gather(trace.read(self), indices, name=name)

    def gather_nd(self, indices: Any, name: str | None = None) -> tf.Tensor:
        """Return slices of the value."""
        trace = traces.active()
        if trace is None:
            return self._v.gather_nd(indices, name=name)
        return tf.gather_nd(trace.read(self), indices, name=name)

    def assign(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        """Replace the value."""
        return self._write("assign", value, *args, **kwargs)

    def assign_add(self, delta: Any, *args: Any, **kwargs: Any) -> Any:
        """Add to the value."""
        return self._write("assign_add", delta, *args, **kwargs)

    def assign_sub(self, delta: Any, *args: Any, **kwargs: Any) -> Any:
        """Subtract from the value."""
        return self._write("assign_sub", delta, *args, **kwargs)

    def _write(self, method: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        trace = traces.active()
        if trace is None:
            refuse_in_update_of_shard(self.name)
            value = to_server(value, self._v.device)
            return getattr(self._v, method)(value, *args, **kwargs)
        return trace.assign(self, method, value)

    def _dense_var_to_tensor(
        self, dtype: Any = None, name: str | None = None, as_ref: bool = False
    ) -> tf.Tensor:
        del name, as_ref
        if dtype is not None and not self.dtype.is_compatible_with(dtype):
            return NotImplemented
        return self.value()


def _refuse_in_replica(method: str) -> Callable[..., Any]:
    def scatter(self: ServerVariable, *args: Any, **kwargs: Any) -> Any:
        if traces.active() is not None:
            raise NotImplementedError(
                f"{self.name}.{method} was called in a replica, where the whole value is needed: "
                f"write {self.name}.assign(tf.tensor_scatter_nd_...({self.name}, ...)), or call it "
                "outside of strategy.run"
            )
        refuse_in_update_of_shard(self.name)
        return getattr(self._v, method)(*args, **kwargs)

    return scatter


for _method in (
    "scatter_add",
    "scatter_sub",
    "scatter_update",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "scatter_div",
    "batch_scatter_update",
    "scatter_nd_add",
    "scatter_nd_sub",
    "scatter_nd_update",
):
    setattr(ServerVariable, _method, _refuse_in_replica(_method))


class LocalVariable(private.ps_values.CachingVariable):  # type: ignore[misc]
    """A variable that is synchronised when it is read, such as a metric's.

    Each worker has a row for each virtual replica. A replica reads and writes its own row, without
    the wire; a read outside of the replicas aggregates the rows.

    Parameters
    ----------
    parts
        One variable on each worker, of shape ``[replicas, *shape]``. All rows of a worker that does
        not run the replica are zero.
    aggregation
        SUM, MEAN, ONLY_FIRST_REPLICA or NONE.
    owners
        Returns the worker of each replica.
    """

    def __init__(
        self,
        parts: Sequence[tf.Variable],
        aggregation: tf.VariableAggregation,
        owners: Callable[[], Sequence[int]],
        name: str,
    ) -> None:
        super().__init__(parts[0])
        self.parts = parts
        self._aggregation = aggregation
        self._owners = owners
        self._local_name = name

    @property
    def aggregation(self) -> tf.VariableAggregation:
        """How the replicas' values become one."""
        return self._aggregation

    @property
    def synchronization(self) -> tf.VariableSynchronization:
        """Always at the read."""
        return tf.VariableSynchronization.ON_READ

    @property
    def shape(self) -> tf.TensorShape:
        """Of a replica's value."""
        return self.parts[0].shape[1:]

    @property
    def name(self) -> str:
        """As it was created."""
        return self._local_name

    @property
    def _replicas(self) -> int:
        return int(self.parts[0].shape[0])

    def read_value(self) -> tf.Tensor:
        """Return the replica's value, or outside of the replicas the aggregated one."""
        trace = traces.active()
        if trace is not None:
            return self.parts[0].sparse_read(trace.replica)
        if self._aggregation == tf.VariableAggregation.SUM:
            return tf.add_n([tf.reduce_sum(part.read_value(), 0) for part in self.parts])
        rows = self.rows()
        if self._aggregation == tf.VariableAggregation.MEAN:
            return tf.reduce_sum(rows, 0) / tf.cast(self._replicas, self.dtype)
        return rows[0]

    value = read_value

    def rows(self) -> tf.Tensor:
        """Return each replica's value, in order; each worker is asked once, for all rows."""
        parts = tf.stack([part.read_value() for part in self.parts])
        places = [[worker, row] for row, worker in enumerate(self._owners())]
        return tf.gather_nd(parts, places)

    def assign_rows(self, rows: tf.Tensor) -> None:
        """Give each replica's value to the worker that runs it."""
        owners = np.array(self._owners()).reshape([-1] + [1] * self.shape.rank)
        for worker, part in enumerate(self.parts):
            part.assign(tf.where(owners == worker, rows, tf.zeros_like(rows)), read_value=False)

    def assign(self, value: Any, *_: Any, **__: Any) -> Any:
        """Replace the replica's value; outside of the replicas, what a read then returns."""
        trace = traces.active()
        value = tf.convert_to_tensor(value, self.dtype)
        if trace is not None:
            return self._update_row(tf.raw_ops.ResourceScatterUpdate, value, trace)
        if self._aggregation == tf.VariableAggregation.SUM:
            value = tf.cast(value / tf.cast(self._replicas, value.dtype), value.dtype)
        self.assign_rows(tf.broadcast_to(value, [self._replicas, *self.shape]))
        return self

    def assign_add(self, delta: Any, *_: Any, **__: Any) -> Any:
        """Add to the replica's value."""
        return self._add(tf.raw_ops.ResourceScatterAdd, delta, 1)

    def assign_sub(self, delta: Any, *_: Any, **__: Any) -> Any:
        """Subtract from the replica's value."""
        return self._add(tf.raw_ops.ResourceScatterSub, delta, -1)

    def _add(self, op: Any, delta: Any, sign: int) -> Any:
        trace = traces.active()
        delta = tf.convert_to_tensor(delta, self.dtype)
        if trace is not None:
            return self._update_row(op, delta, trace)
        if self._aggregation == tf.VariableAggregation.SUM:
            raise ValueError(
                f"{self.name} holds a part of a sum in each replica: outside of strategy.run it "
                "can be assigned, not added to"
            )
        self.assign_rows(self.rows() + sign * delta)
        return self

    def _update_row(self, op: Any, value: tf.Tensor, trace: Any) -> tf.Tensor:
        part = self.parts[0]
        value = tf.broadcast_to(value, self.shape)
        op(resource=part.handle, indices=trace.replica, updates=value)
        return part.sparse_read(trace.replica)

    def _dense_var_to_tensor(
        self, dtype: Any = None, name: str | None = None, as_ref: bool = False
    ) -> tf.Tensor:
        del name, as_ref
        if dtype is not None and not self.dtype.is_compatible_with(dtype):
            return NotImplemented
        return self.read_value()

    # How checkpoints and SavedModels keep it: as a plain variable of the aggregated value.

    def _serialize_to_tensors(self) -> dict[str, tf.Tensor]:
        return {private.VARIABLE_VALUE_KEY: self.read_value()}

    def _restore_from_tensors(self, restored: dict[str, tf.Tensor]) -> None:
        self.assign(restored[private.VARIABLE_VALUE_KEY])

    def _export_to_saved_model_graph(
        self, object_map: Any, tensor_map: Any, options: Any, **kwargs: Any
    ) -> list[Any]:
        del options, kwargs
        object_map[self] = private.stand_in(self)
        tensor_map[self.handle] = object_map[self].handle
        return [self.handle]

    def _copy_trackable_to_cpu(self, object_map: Any) -> None:
        if self not in object_map:
            object_map[self] = private.stand_in(self)
        object_map[self].assign(self.read_value())

    def _write_object_proto(self, proto: Any, options: Any) -> None:
        private.describe_variable(self, proto, options)


for _class in (ServerVariable, LocalVariable):
    private.register_tensor_conversion(_class)
