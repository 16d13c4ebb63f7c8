"""One round: a call of each worker's program, the servers' programs, and the replicas' results."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tf_rdmabatch import ops
from tf_rdmabatch.strategy import _tensorflow as private
from tf_rdmabatch.strategy.describe import describe_contents
from tf_rdmabatch.strategy.lifting import Done
from tf_rdmabatch.strategy.server_program import ServerPrograms
from tf_rdmabatch.strategy.values import MicroBatches, WorkerBatches
from tf_rdmabatch.strategy.worker_program import WorkerProgram, trace_worker_program

LOGGER = logging.getLogger("tf_rdmabatch")
# How many functions' rounds are kept that were run in eager mode.
_CACHED = 64
# How many rounds' reports are kept.
_REPORTS = 64


# Of a worker's round: its number, and what the engine measured.
_REPORT = np.dtype([(name, np.int64) for name in ops.REPORT_FIELDS])


class Rounds:
    """Runs functions in all virtual replicas.

    Parameters
    ----------
    strategy
        Whose replicas.
    """

    def __init__(self, strategy: Any) -> None:
        self._strategy = weakref.ref(strategy)
        self._eager: OrderedDict[Any, Round] = OrderedDict()
        self._name: Callable[..., Any] | None = None
        self._device = strategy.extended.chief_device
        self._logged = False
        # Each round takes the next number, of all programs; a failed one is not repeated.
        with tf.init_scope(), tf.device(self._device):
            self.number = private.create_variable(
                initial_value=tf.constant(0, tf.int64), trainable=False, name="round"
            )
            shape = [_REPORTS, strategy.extended.worker_count, len(ops.REPORT_FIELDS)]
            self._reports = private.create_variable(
                initial_value=lambda: tf.zeros(shape, tf.int64), trainable=False, name="reports"
            )

    def keep_reports(self, number: tf.Tensor, reports: Sequence[tf.Tensor]) -> None:
        """Keep what each worker reported of a round, in the place of an old one."""
        with tf.device(self._device):
            self._reports.scatter_update(tf.IndexedSlices(tf.stack(reports), number % _REPORTS))

    def reports(self, after: int) -> npt.NDArray[np.void]:
        """Return the reports of the rounds after one, the oldest first; see the strategy."""
        reports: npt.NDArray[np.void] = self._reports.numpy().view(_REPORT)[..., 0]
        numbers = reports["number"].max(axis=1)
        order = np.argsort(numbers)
        return np.asarray(reports[order[numbers[order] > after]])

    def log_once(self, contents: Sequence[Sequence[int]]) -> None:
        """Say, with the first round, where the variables are: all were created by then."""
        if not self._logged:
            self._logged = True
            LOGGER.info("%s", describe_contents(contents))

    @contextlib.contextmanager
    def named(self, function: Callable[..., Any]) -> Iterator[None]:
        """Say which function the user runs: tf.distribute wraps it anew in each call."""
        self._name = function
        try:
            yield
        finally:
            self._name = None

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run `function` once in each replica and return the results.

        Parameters
        ----------
        function
            Called in replica context.
        args, kwargs
            Per-replica values among them are given to their replicas.
        """
        strategy = self._strategy()
        leaves = tf.nest.flatten((args, kwargs))
        inputs = [_as_micro_batches(strategy, leaf) for leaf in leaves]
        batches = [i for i in inputs if i is not None]
        others = tuple(leaf for leaf, i in zip(leaves, inputs, strict=True) if i is None)

        def call(*values: Any) -> Any:
            remaining = iter(values)
            rest = iter(others)
            replaced = [next(rest) if i is None else next(remaining) for i in inputs]
            replica_args, replica_kwargs = tf.nest.pack_sequence_as((args, kwargs), replaced)
            return function(*replica_args, **replica_kwargs)

        if not tf.executing_eagerly():
            return Round(strategy, call)(batches)
        try:
            key = (self._name or function, tuple(i is None for i in inputs), others)
            hash(key)
        except TypeError:
            return Round(strategy, call)(batches)
        if key not in self._eager:
            self._eager[key] = Round(strategy, call)
            if len(self._eager) > _CACHED:
                self._eager.popitem(last=False)
        self._eager.move_to_end(key)
        return self._eager[key](batches)


def _as_micro_batches(strategy: Any, leaf: Any) -> MicroBatches | WorkerBatches | None:
    if isinstance(leaf, MicroBatches | WorkerBatches):
        return leaf
    if isinstance(leaf, private.values.PerReplica):
        if len(leaf.values) != strategy.num_replicas_in_sync:
            raise ValueError(
                f"a per-replica value with {len(leaf.values)} values was given to strategy.run, "
                f"which has {strategy.num_replicas_in_sync} replicas"
            )
        if all(tf.is_tensor(v) for v in leaf.values):
            return MicroBatches.from_values(leaf.values)
        if any(v is not leaf.values[0] for v in leaf.values):
            return MicroBatches.from_values([tf.convert_to_tensor(v) for v in leaf.values])
    return None


class Round:
    """A function's rounds, traced for each kind of input.

    A tf.function of its own, since automatic control dependencies then order the rounds of a graph.

    Parameters
    ----------
    strategy
        Whose replicas.
    function
        Called with a replica's values.
    """

    def __init__(self, strategy: Any, function: Callable[..., Any]) -> None:
        self._strategy = strategy
        self._function = function
        self._results: weakref.WeakKeyDictionary[Any, _Results] = weakref.WeakKeyDictionary()
        self._traced = tf.function(self._build, autograph=False)

    def __call__(self, inputs: Sequence[MicroBatches]) -> Any:
        """Run a round with these inputs and return the replicas' results."""
        concrete = self._traced.get_concrete_function(list(inputs))
        tensors = concrete(*tf.nest.flatten(list(inputs), expand_composites=True))
        return self._results[concrete.graph].pack(list(tensors))

    def _build(self, inputs: Sequence[MicroBatches]) -> list[tf.Tensor]:
        strategy = self._strategy
        extended = strategy.extended
        # A dataset that has ended makes no round: a number that is taken has to be collected.
        with tf.device(extended.chief_device), tf.control_dependencies(_arrivals(inputs)):
            number = tf.identity(extended.rounds.number.assign_add(1))
            allotment = _allotment(inputs, extended)
            first = tf.cumsum(allotment, exclusive=True)
        program = trace_worker_program(strategy, self._function, inputs)
        outputs = [
            self._call_worker(worker, program, inputs, [number, first[worker], allotment[worker]])
            for worker in range(extended.worker_count)
        ]
        extended.rounds.keep_reports(number, [report for report, *_ in outputs])
        results = _Results(
            program, strategy.num_replicas_in_sync, [values for _, *values in outputs]
        )
        servers = ServerPrograms(
            program.plan,
            extended.server_devices,
            strategy.num_replicas_in_sync,
            extended.parameters.readings,
            number,
            results.rows,
        )
        servers.build()
        self._results[private.current_graph()] = results
        extended.rounds.log_once(extended.contents)
        with tf.device(extended.chief_device):
            return results.join(servers)

    def _call_worker(
        self,
        worker: int,
        program: WorkerProgram,
        inputs: Sequence[Any],
        scalars: Sequence[tf.Tensor],
    ) -> list[tf.Tensor]:
        """Call the program on a worker, with round, first replica and number of replicas."""
        extended = self._strategy.extended
        _, first, count = scalars
        with tf.device(extended.chief_device):
            packed = tf.stack(scalars)
            parts = [
                i.on_worker(worker) if isinstance(i, WorkerBatches) else i.part(first, count)
                for i in inputs
            ]
        tensors = tf.nest.flatten(parts, expand_composites=True)
        captures = [
            extended.on_worker(tensor, worker)
            for tensor in private.captured_inputs(program.function)
        ]
        anchor = extended.anchors[worker].handle
        with tf.device(extended.worker_tasks[worker]):
            return private.call(program.function, [packed, anchor, *tensors], captures)


def _arrivals(inputs: Sequence[Any]) -> list[tf.Tensor]:
    """Return tensors that exist when all inputs do."""
    arrivals: list[tf.Tensor] = []
    for batches in inputs:
        if isinstance(batches, WorkerBatches):
            arrivals.append(batches.allotment)
        else:
            arrivals += tf.nest.flatten(batches, expand_composites=True)
    return arrivals


def _allotment(inputs: Sequence[Any], extended: Any) -> tf.Tensor:
    """Return each worker's number of replicas: those that it has read micro-batches for."""
    for batches in inputs:
        if isinstance(batches, WorkerBatches):
            return batches.allotment
    return extended.allotment_variable.read_value()


class _Results:
    """Puts the workers' outputs together to the replicas' results."""

    def __init__(
        self, program: WorkerProgram, replicas: int, outputs: Sequence[Sequence[tf.Tensor]]
    ) -> None:
        self._program = program
        self._replicas = replicas
        self._outputs = outputs

    def join(self, servers: ServerPrograms) -> list[tf.Tensor]:
        """Return each replica's tensors: those of the first result, of the second, and so on."""
        outputs, depends = self._program.outputs, self._program.plan.depends
        returned = {tensor.ref(): self._split(tensor) for tensor in outputs.returned}
        done: list[Done] = [{} for _ in range(self._replicas)]
        joined: list[tf.Tensor] = []
        for tensor in outputs.tensors:
            if not depends(tensor):
                joined += returned[tensor.ref()]
                continue
            for i in range(self._replicas):

                def of_replica(leaf: tf.Tensor, i: int = i) -> tf.Tensor:
                    return returned[leaf.ref()][i]

                joined.append(servers.output(tensor, of_replica, done[i]))
        # The tensors of this graph are not wanted any more.
        self._outputs = ()
        return joined

    def rows(self, tensor: tf.Tensor) -> tf.Tensor:
        """Return all replicas' rows of a tensor that the workers return, in one tensor."""
        whole = self.whole(tensor)
        # Tensors of one shape are stacked, the others follow each other already.
        return tf.reshape(whole, [-1, *whole.shape[2:]]) if self._is_stacked(tensor) else whole

    def _is_stacked(self, tensor: tf.Tensor) -> bool:
        return bool(tensor.shape.is_fully_defined())

    def whole(self, tensor: tf.Tensor) -> tf.Tensor:
        """Return all replicas' values of a tensor that the workers return, on one another."""
        index = next(i for i, t in enumerate(self._program.outputs.returned) if t is tensor)
        return tf.concat([output[index] for output in self._outputs], 0)

    def _split(self, tensor: tf.Tensor) -> list[tf.Tensor]:
        """Return each replica's value of a tensor that the workers return."""
        outputs = self._program.outputs
        index = next(i for i, t in enumerate(outputs.returned) if t is tensor)
        whole = self.whole(tensor)
        if outputs.stacked[index]:
            return list(tf.unstack(whole, num=self._replicas))
        # After the tensors come the numbers of rows of those that differ.
        rows = len(outputs.returned) + outputs.stacked[:index].count(False)
        sizes = tf.concat([output[rows] for output in self._outputs], 0)
        sizes = tf.ensure_shape(sizes, [self._replicas])
        return list(tf.split(whole, sizes, num=self._replicas))

    def pack(self, tensors: Sequence[tf.Tensor]) -> Any:
        """Return the replica function's result, with per-replica values for its tensors."""
        k = self._replicas
        columns = iter([tensors[i : i + k] for i in range(0, len(tensors), k)])

        def per_replica(leaf: Any) -> Any:
            flat = tf.nest.flatten(leaf, expand_composites=True)
            if not flat or not all(private.is_graph_tensor(t) for t in flat):
                return leaf
            parts = [next(columns) for _ in flat]
            if k == 1:
                return tf.nest.pack_sequence_as(leaf, [p[0] for p in parts], expand_composites=True)
            return private.values.PerReplica(
                [
                    tf.nest.pack_sequence_as(leaf, [p[i] for p in parts], expand_composites=True)
                    for i in range(k)
                ]
            )

        return tf.nest.map_structure(per_replica, self._program.outputs.structure)
