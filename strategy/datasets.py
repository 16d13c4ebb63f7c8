"""Datasets whose batches are cut into one micro-batch for each virtual replica."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_rdmabatch.strategy import _tensorflow as private
from tf_rdmabatch.strategy.values import MicroBatches, MicroBatchesSpec, row_count


class Cutter:
    """Cuts batches as the other synchronous strategies of TensorFlow do.

    Parameters
    ----------
    replicas
        Into how many.
    batch_size
        Of all batches but perhaps the last; None where it is not known. If it is, the first replicas
        fill up first when a batch is short; else the rows are spread evenly.
    """

    def __init__(self, replicas: int, batch_size: int | None) -> None:
        self._replicas = replicas
        self._batch_size = batch_size

    def cut(self, batch: Any) -> Any:
        """Return a batch with `MicroBatches` for its tensors."""
        rows = row_count(tf.nest.flatten(batch)[0])
        bounds = tf.minimum(self._bounds(rows), rows)
        return tf.nest.map_structure(
            lambda t: MicroBatches(t, bounds, self._replicas, self._size(t)), batch
        )

    def _bounds(self, rows: tf.Tensor) -> tf.Tensor:
        numbers = tf.range(self._replicas + 1, dtype=tf.int64)
        if self._batch_size is None:
            return numbers * (-(-rows // self._replicas))
        size, larger = divmod(self._batch_size, self._replicas)
        return numbers * size + tf.minimum(numbers, larger)

    def _size(self, batch: Any) -> int | None:
        rows = batch.shape[0] if batch.shape.rank else None
        return rows // self._replicas if rows and rows % self._replicas == 0 else None


class BatchDataset(private.input_lib._IterableInput):  # type: ignore[misc, name-defined]
    """A dataset of global batches that the chief reads.

    Parameters
    ----------
    strategy
        Whose replicas get the micro-batches.
    dataset
        Of batches.
    """

    def __init__(self, strategy: Any, dataset: tf.data.Dataset) -> None:
        self._strategy = strategy
        with tf.device(strategy.extended.chief_device):
            self._dataset = dataset.prefetch(1)
        self._cutter = Cutter(strategy.num_replicas_in_sync, batch_size(dataset))
        self._spec = dataset.element_spec

    def __iter__(self) -> Any:
        with tf.device(self._strategy.extended.chief_device):
            return BatchIterator(self._strategy, iter(self._dataset), self._cutter)

    @property
    def element_spec(self) -> Any:
        """Specs of the elements."""
        return element_spec(self._spec, self._strategy.num_replicas_in_sync)

    @property
    def cardinality(self) -> Any:
        """Number of batches."""
        return self._dataset.cardinality()


def batch_size(dataset: tf.data.Dataset) -> int | None:
    """Return the number of rows that the dataset's batches have, but perhaps the last."""
    size = int(private.compute_batch_size(dataset))
    return None if size < 0 else size


def element_spec(spec: Any, replicas: int) -> Any:
    """Return what the elements of a dataset of that spec become."""
    def cut(s: Any) -> Any:
        rows = s.shape[0] if s.shape.rank else None
        size = rows // replicas if rows and rows % replicas == 0 else None
        return MicroBatchesSpec(s, tf.TensorSpec([replicas + 1], tf.int64), replicas, size)
    return tf.nest.map_structure(cut, spec)


class BatchIterator(private.input_lib.DistributedIterator):  # type: ignore[misc, name-defined]
    """Iterates over a `BatchDataset`, in eager mode or inside a `tf.function`.

    Parameters
    ----------
    strategy
        Whose replicas get the micro-batches.
    iterator
        Over global batches, on the chief.
    cutter
        Cuts them.
    """

    def __init__(self, strategy: Any, iterator: Any, cutter: Cutter) -> None:
        self._strategy = strategy
        self._iterator = iterator
        self._cutter = cutter

    def get_next(self, name: str | None = None) -> Any:
        """Return the next batch's micro-batches."""
        del name
        if private.distribute_lib.get_replica_context() is not None and (
            private.distribute_lib.has_strategy()
        ):
            raise ValueError(
                "next(iterator) was called in a replica: call it outside, "
                "strategy.run(function, args=(next(iterator),))"
            )
        with tf.device(self._strategy.extended.chief_device):
            return self._cutter.cut(self._iterator.get_next())

    def get_next_as_optional(self) -> Any:
        """Return a `tf.experimental.Optional` of the next batch's micro-batches."""
        with tf.device(self._strategy.extended.chief_device):
            batch = self._iterator.get_next_as_optional()
            spec = self.element_spec
            return tf.cond(
                batch.has_value(),
                lambda: tf.experimental.Optional.from_value(self._cutter.cut(batch.get_value())),
                lambda: tf.experimental.Optional.empty(spec),
            )

    @property
    def element_spec(self) -> Any:
        """Specs of the elements."""
        return element_spec(self._iterator.element_spec, self._strategy.num_replicas_in_sync)

    @property
    def _type_spec(self) -> BatchIteratorSpec:
        return BatchIteratorSpec(self._strategy, self._iterator._type_spec, self._cutter)


class BatchIteratorSpec(tf.TypeSpec):  # type: ignore[misc]
    """Type of a `BatchIterator`."""

    def __init__(self, strategy: Any, iterator: Any, cutter: Cutter) -> None:
        self._strategy = strategy
        self._iterator = iterator
        self._cutter = cutter

    value_type = property(lambda _: BatchIterator)

    def _serialize(self) -> tuple[Any, ...]:
        # Neither a strategy nor a cutter can be part of a key but by its identity.
        return id(self._strategy), self._iterator, id(self._cutter)

    def _deserialize(self, serialization: tuple[Any, ...]) -> BatchIteratorSpec:
        return BatchIteratorSpec(self._strategy, serialization[1], self._cutter)

    @property
    def _component_specs(self) -> Any:
        return self._iterator

    def _to_components(self, value: BatchIterator) -> Any:
        return value._iterator

    def _from_components(self, components: Any) -> BatchIterator:
        return BatchIterator(self._strategy, components, self._cutter)
