"""Datasets that each worker reads for itself, made by a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_rdmabatch.strategy import _tensorflow as private
from tf_rdmabatch.strategy.values import WorkerBatches, WorkerBatchesSpec


class WorkerDatasets(private.input_lib._IterableInput):  # type: ignore[misc]
    """One dataset on each worker, whose elements are the micro-batches of the worker's replicas.

    Parameters
    ----------
    strategy
        Whose workers.
    dataset_fn
        Called once for each worker with a `tf.distribute.InputContext`.
    """

    def __init__(self, strategy: Any, dataset_fn: Callable[..., tf.data.Dataset]) -> None:
        self._strategy = strategy
        devices = strategy.extended.worker_cpus
        self._datasets = []
        for worker, device in enumerate(devices):
            context = tf.distribute.InputContext(
                len(devices), worker, strategy.num_replicas_in_sync
            )
            with tf.device(device):
                self._datasets.append(dataset_fn(context))
        self._spec = self._datasets[0].element_spec
        for spec in tf.nest.flatten(self._spec):
            if not isinstance(spec, tf.TensorSpec):
                raise TypeError(
                    f"distribute_datasets_from_function got a dataset of {spec}: it takes dense "
                    "tensors; use experimental_distribute_dataset, or make them dense"
                )

    def __iter__(self) -> Any:
        iterators = []
        for dataset, device in zip(
            self._datasets, self._strategy.extended.worker_cpus, strict=True
        ):
            with tf.device(device):
                iterators.append(iter(dataset))
        return WorkerIterator(self._strategy, iterators)

    @property
    def element_spec(self) -> Any:
        """Specs of the elements."""
        return worker_element_spec(self._spec, self._strategy)

    @property
    def cardinality(self) -> Any:
        """Number of elements: not known, since workers take different numbers of micro-batches."""
        return tf.data.UNKNOWN_CARDINALITY


def worker_element_spec(spec: Any, strategy: Any) -> Any:
    """Return what the elements of the workers' datasets become."""
    workers, replicas = strategy.extended.worker_count, strategy.num_replicas_in_sync
    return tf.nest.map_structure(lambda s: WorkerBatchesSpec(s, workers, replicas), spec)


class WorkerIterator(private.input_lib.DistributedIterator):  # type: ignore[misc]
    """Iterates over `WorkerDatasets`: in each step over as many elements as there are replicas.

    A worker whose dataset has ended gives its replicas empty micro-batches, until all have ended.

    Parameters
    ----------
    strategy
        Whose workers.
    iterators
        On each worker.
    """

    def __init__(self, strategy: Any, iterators: Sequence[Any]) -> None:
        self._strategy = strategy
        self._iterators = iterators

    def get_next(self, name: str | None = None) -> Any:
        """Return the next micro-batches of all replicas."""
        del name
        private.refuse_in_replica("next(iterator)")
        return _pack(self, _take_or_end(self))

    def get_next_as_optional(self) -> Any:
        """Return a `tf.experimental.Optional` of the next micro-batches."""
        spec = self.element_spec
        parts, any_left = _take(self)
        return tf.cond(
            any_left,
            lambda: tf.experimental.Optional.from_value(_pack(self, parts)),
            lambda: tf.experimental.Optional.empty(spec),
        )

    @property
    def element_spec(self) -> Any:
        """Specs of the elements."""
        return worker_element_spec(self._iterators[0].element_spec, self._strategy)

    @property
    def _type_spec(self) -> WorkerIteratorSpec:
        return WorkerIteratorSpec(self._strategy, [i._type_spec for i in self._iterators])


class WorkerIteratorSpec(tf.TypeSpec):  # type: ignore[misc]
    """Type of a `WorkerIterator`."""

    def __init__(self, strategy: Any, iterators: Sequence[Any]) -> None:
        self._strategy = strategy
        self._specs = list(iterators)

    value_type = property(lambda _: WorkerIterator)

    def _serialize(self) -> tuple[Any, ...]:
        return id(self._strategy), tuple(self._specs)

    def _deserialize(self, serialization: tuple[Any, ...]) -> WorkerIteratorSpec:
        return WorkerIteratorSpec(self._strategy, serialization[1])

    @property
    def _component_specs(self) -> Any:
        return self._specs

    def _to_components(self, value: WorkerIterator) -> Any:
        return list(value._iterators)

    def _from_components(self, components: Any) -> WorkerIterator:
        return WorkerIterator(self._strategy, components)


# Each worker's rows of each component, and the number of rows of each of its replicas.
_Part = tuple[list[tf.Tensor], tf.Tensor]


def _take(iterator: WorkerIterator) -> tuple[list[_Part], tf.Tensor]:
    extended = iterator._strategy.extended
    with tf.device(extended.chief_device):
        allotment = tf.identity(extended.allotment_variable)
    parts, left = [], []
    for worker, own in enumerate(iterator._iterators):
        with tf.device(extended.worker_cpus[worker]):
            rows, sizes, any_left = _take_elements(own, allotment[worker])
        parts.append((rows, sizes))
        left.append(any_left)
    with tf.device(extended.chief_device):
        return parts, tf.reduce_any(left)


def _take_or_end(iterator: WorkerIterator) -> list[_Part]:
    parts, any_left = _take(iterator)
    if tf.executing_eagerly():
        if not any_left:
            raise tf.errors.OutOfRangeError(None, None, "End of all workers' datasets")
        return parts
    first = iterator._iterators[0]

    def end() -> tf.Tensor:
        # Where nothing is left this raises OutOfRangeError.
        with tf.control_dependencies(tf.nest.flatten(first.get_next())):
            return tf.constant(0)

    with tf.control_dependencies([tf.cond(any_left, lambda: tf.constant(0), end)]):
        return [(rows, tf.identity(sizes)) for rows, sizes in parts]


@tf.function(autograph=False, reduce_retracing=True)  # type: ignore[untyped-decorator]
def _take_elements(iterator: Any, count: tf.Tensor) -> Any:
    """Return the rows of the next `count` elements, how many each has, and if any is left."""
    specs = tf.nest.flatten(iterator.element_spec)
    size = tf.cast(count, tf.int32)
    arrays = [
        tf.TensorArray(s.dtype, size, element_shape=[None, *s.shape[1:]], infer_shape=False)
        for s in specs
    ]
    sizes = tf.TensorArray(tf.int64, size, element_shape=[])

    def body(index: Any, arrays: Any, sizes: Any) -> Any:
        element = iterator.get_next_as_optional()
        empty = [tf.zeros([0, *(d or 0 for d in s.shape[1:])], s.dtype) for s in specs]
        values = tf.cond(
            element.has_value(),
            lambda: tf.nest.flatten(element.get_value()),
            lambda: empty,
        )
        for value, spec in zip(values, specs, strict=True):
            value.set_shape([None, *spec.shape[1:]])
        arrays = [a.write(index, v) for a, v in zip(arrays, values, strict=True)]
        return index + 1, arrays, sizes.write(index, tf.shape(values[0], tf.int64)[0])

    _, arrays, sizes = tf.while_loop(
        lambda index, *_: index < size, body, [0, arrays, sizes], parallel_iterations=1
    )
    counts = sizes.stack()
    return [a.concat() for a in arrays], counts, tf.reduce_any(counts > 0)


def _pack(iterator: WorkerIterator, parts: Sequence[_Part]) -> Any:
    spec = iterator._iterators[0].element_spec
    replicas = iterator._strategy.num_replicas_in_sync
    leaves = []
    for i, _ in enumerate(tf.nest.flatten(spec)):
        leaves.append(WorkerBatches([(rows[i], sizes) for rows, sizes in parts], replicas))
    return tf.nest.pack_sequence_as(spec, leaves)
