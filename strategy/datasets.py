"""Datasets whose batches are cut into one micro-batch for each virtual replica."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_rdmabatch.strategy import _tensorflow as private
from tf_rdmabatch.strategy.values import MicroBatches, MicroBatchesSpec, row_count


def cut(batch: Any, replicas: int) -> Any:
    """Return a batch with `MicroBatches` for its tensors.

    The rows are spread as TensorFlow's other synchronous strategies do it: each replica has as many
    as the first, but for the last ones, which have what is left.
    """
    rows = row_count(tf.nest.flatten(batch)[0])
    numbers = tf.range(replicas + 1, dtype=tf.int64)
    bounds = tf.minimum(numbers * (-(-rows // replicas)), rows)
    return tf.nest.map_structure(
        lambda t: MicroBatches(t, bounds, replicas, _micro_batch_size(t, replicas)), batch
    )


def _micro_batch_size(batch: Any, replicas: int) -> int | None:
    """Return the rows of every replica, where they are known and as many."""
    rows = batch.shape[0] if batch.shape.rank else None
    return rows // replicas if rows and rows % replicas == 0 else None


class BatchDataset(private.input_lib._IterableInput):  # type: ignore[misc]
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
        self._refuse_small(dataset)
        self._spec = dataset.element_spec

    def __iter__(self) -> Any:
        with tf.device(self._strategy.extended.chief_device):
            return BatchIterator(self._strategy, iter(self._dataset))

    def _refuse_small(self, dataset: tf.data.Dataset) -> None:
        size, replicas = (
            int(private.compute_batch_size(dataset)),
            self._strategy.num_replicas_in_sync,
        )
        if 0 <= size < replicas:
            raise ValueError(
                f"the dataset's batches have {size} examples, fewer than the {replicas} virtual "
                "replicas that share each: make the batches larger, or pass "
                f"ParameterServerStrategy a num_virtual_replicas of at most {size}"
            )

    @property
    def element_spec(self) -> Any:
        """Specs of the elements."""
        return element_spec(self._spec, self._strategy.num_replicas_in_sync)

    @property
    def cardinality(self) -> Any:
        """Number of batches."""
        return self._dataset.cardinality()


def element_spec(spec: Any, replicas: int) -> Any:
    """Return what the elements of a dataset of that spec become."""
    bounds = tf.TensorSpec([replicas + 1], tf.int64)
    return tf.nest.map_structure(
        lambda s: MicroBatchesSpec(s, bounds, replicas, _micro_batch_size(s, replicas)), spec
    )


class BatchIterator(private.input_lib.DistributedIterator):  # type: ignore[misc]
    """Iterates over a `BatchDataset`, in eager mode or inside a `tf.function`.

    Parameters
    ----------
    strategy
        Whose replicas get the micro-batches.
    iterator
        Over global batches, on the chief.
    """

    def __init__(self, strategy: Any, iterator: Any) -> None:
        self._strategy = strategy
        self._iterator = iterator

    def get_next(self, name: str | None = None) -> Any:
        """Return the next batch's micro-batches."""
        del name
        private.refuse_in_replica("next(iterator)")
        with tf.device(self._strategy.extended.chief_device):
            return cut(self._iterator.get_next(), self._strategy.num_replicas_in_sync)

    def get_next_as_optional(self) -> Any:
        """Return a `tf.experimental.Optional` of the next batch's micro-batches."""
        with tf.device(self._strategy.extended.chief_device):
            batch = self._iterator.get_next_as_optional()
            spec, replicas = self.element_spec, self._strategy.num_replicas_in_sync
            return tf.cond(
                batch.has_value(),
                lambda: tf.experimental.Optional.from_value(cut(batch.get_value(), replicas)),
                lambda: tf.experimental.Optional.empty(spec),
            )

    @property
    def element_spec(self) -> Any:
        """Specs of the elements."""
        return element_spec(self._iterator.element_spec, self._strategy.num_replicas_in_sync)

    @property
    def _type_spec(self) -> BatchIteratorSpec:
        return BatchIteratorSpec(self._strategy, self._iterator._type_spec)


class BatchIteratorSpec(tf.TypeSpec):  # type: ignore[misc]
    """Type of a `BatchIterator`."""

    def __init__(self, strategy: Any, iterator: Any) -> None:
        self._strategy = strategy
        self._iterator = iterator

    value_type = property(lambda _: BatchIterator)

    def _serialize(self) -> tuple[Any, ...]:
        # A strategy cannot be part of a key but by its identity.
        return id(self._strategy), self._iterator

    def _deserialize(self, serialization: tuple[Any, ...]) -> BatchIteratorSpec:
        return BatchIteratorSpec(self._strategy, serialization[1])

    @property
    def _component_specs(self) -> Any:
        return self._iterator

    def _to_components(self, value: BatchIterator) -> Any:
        return value._iterator

    def _from_components(self, components: Any) -> BatchIterator:
        return BatchIterator(self._strategy, components)
