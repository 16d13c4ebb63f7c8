"""Per-replica values that stay in one piece until someone asks for a single replica's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_rdmabatch.strategy import _tensorflow as private


class MicroBatches(private.values.PerReplica):  # type: ignore[misc]
    """The micro-batches of all virtual replicas: a batch, and where each begins.

    It passes through a `tf.function` as these two tensors, so that a worker can be sent the rows of
    its replicas alone.

    Parameters
    ----------
    rows
        The batch; a tensor, `tf.RaggedTensor` or `tf.SparseTensor`.
    bounds
        int64, of shape ``[replicas + 1]``: replica i has the rows from ``bounds[i]`` to
        ``bounds[i + 1]``. None: row i is replica i's value.
    replicas
        How many.
    size
        Rows that each replica has, where that is known.
    """

    def __init__(
        self, rows: Any, bounds: tf.Tensor | None, replicas: int, size: int | None = None
    ) -> None:
        self.rows = rows
        self.bounds = bounds
        self.replicas = replicas
        self.size = size
        self._cached: tuple[Any, tuple[Any, ...]] | None = None

    @property
    def _values(self) -> tuple[Any, ...]:
        graph = private.current_graph() if not tf.executing_eagerly() else None
        if self._cached is None or self._cached[0] is not graph:
            values = tuple(self.value_of(i) for i in range(self.replicas))
            self._cached = graph, values
        return self._cached[1]

    @property
    def values(self) -> tuple[Any, ...]:
        """Each replica's value."""
        return self._values

    def value_of(self, replica: Any) -> Any:
        """Return the value of one replica; its number may be a tensor."""
        if self.bounds is None:
            return self.rows[replica]
        value = take_rows(self.rows, self.bounds[replica], self.bounds[replica + 1])
        if self.size is not None and isinstance(value, tf.Tensor):
            value.set_shape([self.size, *value.shape[1:]])
        return value

    def part(self, first: tf.Tensor, count: tf.Tensor) -> MicroBatches:
        """Return the values of the replicas from `first` on, for a worker that runs `count`."""
        if self.bounds is None:
            return MicroBatches(take_rows(self.rows, first, first + count), None, self.replicas)
        bounds = self.bounds[first : first + count + 1]
        rows = take_rows(self.rows, bounds[0], bounds[-1])
        return MicroBatches(rows, bounds - bounds[0], self.replicas, self.size)

    def even(self) -> private.values.PerReplica:
        """Return the rows that all replicas have as many of, so that their values can be added.

        Keras adds the first batch's to learn its shape.
        """
        if self.bounds is None or self.size is not None:
            return self
        rows = tf.reduce_min(self.bounds[1:] - self.bounds[:-1])
        return private.values.PerReplica(
            [take_rows(v, tf.zeros([], tf.int64), rows) for v in self.values]
        )

    @property
    def value_spec(self) -> Any:
        """`tf.TypeSpec` of a replica's value."""
        spec = tf.type_spec_from_value(self.rows)
        if self.bounds is not None:
            return _with_rows(spec, self.size)
        return tf.TensorSpec(spec.shape[1:], spec.dtype)

    @property
    def _type_spec(self) -> MicroBatchesSpec:
        bounds = None if self.bounds is None else tf.TensorSpec([self.replicas + 1], tf.int64)
        return MicroBatchesSpec(
            tf.type_spec_from_value(self.rows), bounds, self.replicas, self.size
        )

    @classmethod
    def from_values(cls, values: Sequence[Any]) -> MicroBatches:
        """Put each replica's value together in one."""
        specs = [tf.type_spec_from_value(v) for v in values]
        replicas = len(values)
        first = specs[0]
        if isinstance(first, tf.TensorSpec):
            same = all(s.shape == first.shape for s in specs) and first.shape.is_fully_defined()
            if first.shape.rank == 0 or same:
                return cls(tf.stack(list(values)), None, replicas)
        sizes = tf.stack([row_count(v) for v in values])
        bounds = tf.concat([tf.zeros([1], tf.int64), tf.cumsum(sizes)], 0)
        return cls(concat_rows(list(values)), bounds, replicas)


class MicroBatchesSpec(tf.TypeSpec):  # type: ignore[misc]
    """Type of a `MicroBatches`."""

    def __init__(self, rows: Any, bounds: Any, replicas: int, size: int | None) -> None:
        self._rows = rows
        self._bounds = bounds
        self._replicas = replicas
        self._size = size

    value_type = property(lambda _: MicroBatches)

    def _serialize(self) -> tuple[Any, ...]:
        return self._rows, self._bounds, self._replicas, self._size

    @property
    def _component_specs(self) -> tuple[Any, ...]:
        return (self._rows,) if self._bounds is None else (self._rows, self._bounds)

    def _to_components(self, value: MicroBatches) -> tuple[Any, ...]:
        return (value.rows,) if self._bounds is None else (value.rows, value.bounds)

    def _from_components(self, components: tuple[Any, ...]) -> MicroBatches:
        rows, bounds = (*components, None)[:2]
        return MicroBatches(rows, bounds, self._replicas, self._size)


class WorkerBatches(private.values.PerReplica):  # type: ignore[misc]
    """The micro-batches of all virtual replicas, on the workers that read them.

    Parameters
    ----------
    parts
        Of each worker: the rows of its replicas, and the number of rows of each, int64.
    replicas
        Their number.
    """

    def __init__(self, parts: Sequence[tuple[tf.Tensor, tf.Tensor]], replicas: int) -> None:
        self.parts = list(parts)
        self.replicas = replicas

    @property
    def _values(self) -> tuple[Any, ...]:
        sizes = tf.ensure_shape(tf.concat([s for _, s in self.parts], 0), [self.replicas])
        rows = tf.concat([rows for rows, _ in self.parts], 0)
        return tuple(tf.split(rows, sizes, num=self.replicas))

    @property
    def values(self) -> tuple[Any, ...]:
        """Each replica's value."""
        return self._values

    @property
    def allotment(self) -> tf.Tensor:
        """Number of micro-batches of each worker, int64."""
        return tf.stack([tf.shape(sizes, tf.int64)[0] for _, sizes in self.parts])

    def on_worker(self, worker: int) -> MicroBatches:
        """Return the values of a worker's replicas."""
        rows, sizes = self.parts[worker]
        bounds = tf.concat([tf.zeros([1], tf.int64), tf.cumsum(sizes)], 0)
        return MicroBatches(rows, bounds, self.replicas)

    @property
    def _type_spec(self) -> WorkerBatchesSpec:
        rows = self.parts[0][0]
        spec = tf.TensorSpec([None, *rows.shape[1:]], rows.dtype)
        return WorkerBatchesSpec(spec, len(self.parts), self.replicas)


class WorkerBatchesSpec(tf.TypeSpec):  # type: ignore[misc]
    """Type of `WorkerBatches` whose rows are as in `rows`."""

    def __init__(self, rows: tf.TensorSpec, workers: int, replicas: int) -> None:
        self._rows = rows
        self._workers = workers
        self._replicas = replicas

    value_type = property(lambda _: WorkerBatches)

    def _serialize(self) -> tuple[Any, ...]:
        return self._rows, self._workers, self._replicas

    @property
    def _component_specs(self) -> Any:
        rows = tf.TensorSpec([None, *self._rows.shape[1:]], self._rows.dtype)
        return [(rows, tf.TensorSpec([None], tf.int64))] * self._workers

    def _to_components(self, value: WorkerBatches) -> Any:
        return value.parts

    def _from_components(self, components: Any) -> WorkerBatches:
        return WorkerBatches(components, self._replicas)


def take_rows(batch: Any, first: tf.Tensor, end: tf.Tensor) -> Any:
    """Return the rows of a batch from `first` to before `end`."""
    if isinstance(batch, tf.SparseTensor):
        rest = tf.zeros([tf.size(batch.dense_shape) - 1], tf.int64)
        start = tf.concat([[first], rest], 0)
        size = tf.concat([[end - first], batch.dense_shape[1:]], 0)
        return tf.sparse.slice(batch, start, size)
    return batch[first:end]


def row_count(batch: Any) -> tf.Tensor:
    """Return the number of rows of a batch, an int64 scalar."""
    if isinstance(batch, tf.SparseTensor):
        return batch.dense_shape[0]
    if isinstance(batch, tf.RaggedTensor):
        return tf.cast(batch.nrows(), tf.int64)
    return tf.shape(batch, tf.int64)[0]


def concat_rows(batches: list[Any]) -> Any:
    """Return one batch of the rows of all."""
    if isinstance(batches[0], tf.SparseTensor):
        return tf.sparse.concat(0, batches)
    return tf.concat(batches, 0)


def _with_rows(spec: Any, rows: int | None) -> Any:
    if isinstance(spec, tf.TensorSpec):
        return tf.TensorSpec([rows, *spec.shape[1:]], spec.dtype)
    if isinstance(spec, tf.SparseTensorSpec):
        return tf.SparseTensorSpec([None, *spec.shape[1:]], spec.dtype)
    return tf.RaggedTensorSpec(
        [None, *spec.shape[1:]], spec.dtype, spec.ragged_rank, spec.row_splits_dtype
    )
