"""Variables that the partitioner cut along their first axis into shards, on several servers."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_rdmabatch.strategy import _tensorflow as private
from tf_rdmabatch.strategy import trace as traces

# Ops whose results for a shard are no part of their results for the whole.
_MIXING = {
    *("All", "Any", "BatchMatMulV2", "BatchMatMulV3", "Cumprod", "Cumsum", "Einsum"),
    *("EuclideanNorm", "L2Loss", "MatMul", "Max", "Mean", "Min", "Prod", "Qr", "Sum", "Svd"),
    "Transpose",
}


class _Updating(threading.local):
    """The shard that the current thread updates."""

    bounds: tuple[int, ...] | None = None
    index = 0


_updating = _Updating()


class ShardedServerVariable(private.ShardedVariable):  # type: ignore[misc]
    """A variable in several parts, which are server variables.

    A read is the whole, a tape takes it for a read of the variable and of each shard. An update is
    done once for each shard, on its server: there the shards of all variables that are cut alike
    stand for the variables, so that what works element by element needs nothing from elsewhere.

    Parameters
    ----------
    shards
        Server variables.
    name
        Of the whole.
    """

    __composite_gradient__ = private.VariableGradient()

    def __init__(self, shards: Sequence[Any], name: str) -> None:
        super().__init__(list(shards), name)
        rows = [int(shard.shape[0]) for shard in shards]
        self.bounds = tuple(int(b) for b in np.cumsum([0, *rows]))
        for shard in shards:
            shard.whole = self

    @property
    def shards(self) -> list[Any]:
        """The server variables."""
        return self._variables  # type: ignore[no-any-return]

    def _part(self) -> Any:
        """Return what is to be read and written in the update of a shard, None elsewhere."""
        return self.shards[_updating.index].get() if _updating.bounds == self.bounds else None

    # What a variable has.

    @property
    def handle(self) -> tf.Tensor:
        """What tapes know the variable by; there is no value under it."""
        part = self._part()
        return self._saving_variable.handle if part is None else part.handle

    @property
    def shape(self) -> tf.TensorShape:
        """Of the whole; in the update of a shard, of that."""
        part = self._part()
        return self._shape if part is None else part.shape

    @property
    def trainable(self) -> bool:
        """Whether tapes watch it."""
        return bool(self.shards[0].trainable)

    @property
    def aggregation(self) -> tf.VariableAggregation:
        """How the replicas' assignments become one."""
        return self.shards[0].aggregation

    @property
    def synchronization(self) -> tf.VariableSynchronization:
        """Always at the write."""
        return self.shards[0].synchronization

    @property
    def device(self) -> str:
        """Of the first shard."""
        return str(self.shards[0].device)

    # Reads.

    def read_value(self) -> tf.Tensor:
        """Return the value; in a replica the one that the round began with."""
        part = self._part()
        if part is not None:
            return part.read_value()
        trace = traces.active()
        if trace is not None:
            return trace.read(self)
        if self.variables is not self.shards:
            # What is traced to be saved has the whole as one variable.
            return self._saving_variable.read_value()
        value = tf.concat([shard.read_value() for shard in self.shards], 0)
        return private.record_read(value, self.gradient_sources())

    value = read_value

    def gradient_sources(self) -> list[tuple[Any, Callable[[Any], Any]]]:
        """Return what a read is a read of, and what turns its gradient into theirs."""
        shards = [
            (shard.get(), functools.partial(rows_of, first=first, end=end))
            for shard, first, end in zip(self.shards, self.bounds, self.bounds[1:], strict=False)
        ]
        return [(self._saving_variable, lambda gradient: gradient), *shards]

    def whole_gradient(self, shard: Any, gradient: Any) -> Any:
        """Return the whole variable's gradient for a shard's."""
        index = next(i for i, s in enumerate(self.shards) if s is shard)
        first, end, rows = self.bounds[index], self.bounds[index + 1], self.bounds[-1]
        if isinstance(gradient, tf.IndexedSlices):
            indices = gradient.indices + tf.cast(first, gradient.indices.dtype)
            shape = tf.constant(self._shape.as_list(), gradient.indices.dtype)
            return tf.IndexedSlices(gradient.values, indices, shape)
        return tf.pad(gradient, [[first, rows - end], *[[0, 0]] * (self._shape.rank - 1)])

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> tf.Tensor:
        """Return the value."""
        return tf.convert_to_tensor(self.read_value(), dtype, name=name)

    def __array__(self, dtype: Any = None) -> Any:
        """Return the value."""
        return self.numpy().astype(dtype or self.dtype.as_numpy_dtype, copy=False)

    def numpy(self) -> Any:
        """Return the value as an array."""
        return np.concatenate([shard.numpy() for shard in self.shards])

    def __getitem__(self, spec: Any) -> tf.Tensor:
        """Return a slice of the value."""
        if traces.active() is None and self._part() is None:
            return super().__getitem__(spec)
        return self.read_value()[spec]

    def sparse_read(self, indices: Any, name: str | None = None) -> tf.Tensor:
        """Return rows of the value."""
        return tf.gather(self.read_value(), indices, name=name)

    def gather_nd(self, indices: Any, name: str | None = None) -> tf.Tensor:
        """Return slices of the value."""
        return tf.gather_nd(self.read_value(), indices, name=name)

    # Writes.

    def assign(self, value: Any, *_: Any, **__: Any) -> Any:
        """Replace the value."""
        return self._write("assign", value)

    def assign_add(self, delta: Any, *_: Any, **__: Any) -> Any:
        """Add to the value."""
        return self._write("assign_add", delta)

    def assign_sub(self, delta: Any, *_: Any, **__: Any) -> Any:
        """Subtract from the value."""
        return self._write("assign_sub", delta)

    def _write(self, method: str, value: Any) -> Any:
        part = self._part()
        if part is not None:
            return getattr(part, method)(value)
        value = tf.convert_to_tensor(value, self.dtype)
        if not self._shape.is_compatible_with(value.shape):
            raise ValueError(f"{self.name} has shape {self._shape}, the value {value.shape}")
        trace = traces.active()
        results = [
            getattr(shard, method)(part_of(trace, value, self.bounds, i))
            for i, shard in enumerate(self.shards)
        ]
        return self if trace is None else tf.concat(results, 0)

    def _restore_from_tensors(self, restored_tensors: Any) -> Any:
        """Restore a Keras 3 variable, which asks what it wraps."""
        value = restored_tensors[private.VARIABLE_VALUE_KEY]
        return self.assign(tf.ensure_shape(value, self._shape))


def _operator(name: str) -> Callable[..., Any]:
    def call(self: ShardedServerVariable, *args: Any, **kwargs: Any) -> Any:
        return getattr(tf.Tensor, name)(self.read_value(), *args, **kwargs)

    return call


for _name in tf.Tensor.OVERLOADABLE_OPERATORS - {"__getitem__"}:
    setattr(ShardedServerVariable, _name, _operator(_name))


def _scatter(method: str) -> Callable[..., Any]:
    def scatter(self: ShardedServerVariable, slices: Any, *args: Any, **kwargs: Any) -> Any:
        part = self._part()
        if part is not None:
            return getattr(part, method)(slices, *args, **kwargs)
        return getattr(private.ShardedVariable, method)(self, slices, *args, **kwargs)

    return scatter


for _name in (
    "scatter_add",
    "scatter_sub",
    "scatter_update",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "scatter_div",
    "batch_scatter_update",
):
    setattr(ShardedServerVariable, _name, _scatter(_name))


def rows_of(value: Any, first: int, end: int) -> Any:
    """Return some of the rows of a tensor, or `tf.IndexedSlices` of them."""
    if not isinstance(value, tf.IndexedSlices):
        return value[first:end]
    own = tf.logical_and(value.indices >= first, value.indices < end)
    shape = value.dense_shape
    if shape is not None:
        shape = tf.concat([tf.constant([end - first], shape.dtype), shape[1:]], 0)
    indices = tf.boolean_mask(value.indices, own) - tf.cast(first, value.indices.dtype)
    return tf.IndexedSlices(tf.boolean_mask(value.values, own), indices, shape)


def part_of(trace: Any, value: Any, bounds: Sequence[int], index: int) -> Any:
    """Return a shard's rows of a value that has all of them, without the others if possible."""
    known = None if trace is None else trace.known_part(value, bounds, index)
    return rows_of(value, bounds[index], bounds[index + 1]) if known is None else known


def shard_updates(
    variable: ShardedServerVariable, function: Callable[..., Any], args: Any, kwargs: Any
) -> Iterator[tuple[Any, Callable[..., Any], Any, Any]]:
    """Yield, for each shard, what does its part of an update.

    Parameters
    ----------
    variable
        What `function` is called with.
    function, args, kwargs
        Of the update. Arguments of the variable's shape are cut as the variable is.

    Yields
    ------
    tuple
        The shard, a function to be called with it, and its arguments.
    """
    trace = traces.active()
    arguments = list(args), dict(kwargs or {})
    if trace is not None:
        arguments = trace.hoist(arguments)
    for index, shard in enumerate(variable.shards):

        def own(value: Any, index: int = index) -> Any:
            fits = isinstance(value, tf.Tensor) and value.shape == variable.shape
            if fits or isinstance(value, tf.IndexedSlices):
                return part_of(trace, value, variable.bounds, index)
            return value

        def update(_: Any, *own_args: Any, index: int = index, **own_kwargs: Any) -> Any:
            with _update_of(variable, index):
                return function(variable, *own_args, **own_kwargs)

        yield shard, update, *tf.nest.map_structure(own, arguments)


@contextlib.contextmanager
def _update_of(variable: ShardedServerVariable, index: int) -> Iterator[None]:
    """Let a shard stand for its variable, and refuse what would need the others."""
    advice = (
        "use an optimizer that works element by element (SGD, Adam, ...), or a "
        "variable_partitioner that does not cut it"
    )
    graph = private.current_graph()
    before = len(graph.get_operations())
    previous = _updating.bounds, _updating.index
    _updating.bounds, _updating.index = variable.bounds, index
    try:
        yield
    except (ValueError, tf.errors.InvalidArgumentError) as error:
        raise NotImplementedError(
            f"the update of {variable.name} cannot be done for one of its {len(variable.shards)} "
            f"shards alone: {advice} ({error})"
        ) from error
    finally:
        _updating.bounds, _updating.index = previous
    shape = variable.shards[index].shape
    for op in graph.get_operations()[before:]:
        if op.type in _MIXING and any(i.shape == shape for i in op.inputs):
            raise NotImplementedError(
                f"the update of {variable.name} takes a {op.type} over all of its elements, which "
                f"are in {len(variable.shards)} shards: {advice}"
            )


def refuse_in_update_of_shard(name: str) -> None:
    """Raise an error for a write to another variable in the update of a shard."""
    if _updating.bounds is not None:
        raise NotImplementedError(
            f"{name} was written in the update of a variable that is cut into shards, which is "
            "done once for each shard: use an optimizer whose slots have the variable's shape, or "
            "a variable_partitioner that does not cut the variable"
        )
