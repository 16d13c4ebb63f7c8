"""The synchronous strategy's behaviour: what tf.distribute calls a StrategyExtended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_rdmabatch import ops
from tf_rdmabatch.strategy import _tensorflow as private
from tf_rdmabatch.strategy import trace as traces
from tf_rdmabatch.strategy.datasets import BatchDataset
from tf_rdmabatch.strategy.errors import explain_traced_values
from tf_rdmabatch.strategy.parameters import ParameterTable
from tf_rdmabatch.strategy.placement import LeastLoaded
from tf_rdmabatch.strategy.rounds import Rounds
from tf_rdmabatch.strategy.sharded import ShardedServerVariable, part_of, shard_updates
from tf_rdmabatch.strategy.transfer import to_server
from tf_rdmabatch.strategy.values import MicroBatches
from tf_rdmabatch.strategy.variables import LocalVariable, ServerVariable
from tf_rdmabatch.strategy.worker_datasets import WorkerDatasets

# Variables of up to this size are initialized in one piece.
_WHOLE_BYTES = 1 << 30


class SynchronousExtended(private.pss.ParameterServerStrategyV2Extended):  # type: ignore[misc]
    """Behaviour under ``consistency="bsp"``.

    Parameters
    ----------
    container
        The strategy.
    resolver
        Of the cluster.
    partitioner
        Of variables, or None.
    replicas
        Number of virtual replicas.
    """

    def __init__(self, container: Any, resolver: Any, partitioner: Any, replicas: int) -> None:
        super().__init__(container, resolver, partitioner)
        self._allow_run_without_coordinator = True
        self._replicas = replicas
        # All workers run one program.
        self._retrace_functions_for_each_device = False
        self.worker_count = self._num_workers
        self.chief_device = "/job:chief/replica:0/task:0/device:CPU:0"
        # A worker's replicas run on whatever device it has; what is kept there is on its CPU.
        self.worker_tasks = [f"/job:worker/replica:0/task:{i}" for i in range(self.worker_count)]
        self.worker_cpus = [f"{task}/device:CPU:0" for task in self.worker_tasks]
        self.server_devices = [
            f"/job:ps/replica:0/task:{i}/device:CPU:0" for i in range(self._num_ps)
        ]
        self.placement = LeastLoaded(self._num_ps)
        self.parameters = ParameterTable(self.server_devices, self.worker_count)
        self.local_variables: list[LocalVariable] = []
        # Whether the replicas of functions that are traced from now on wait as `set_delays` says.
        self.slowed = False
        # Bytes of each variable on each server.
        self.contents: list[list[int]] = [[] for _ in self.server_devices]
        self.anchors = []
        for device in self.worker_cpus:
            with tf.device(device):
                self.anchors.append(tf.Variable(0, trainable=False, name="anchor"))
        base, more = divmod(replicas, self._num_workers)
        self._allotment = tuple(base + (i < more) for i in range(self._num_workers))
        with tf.device(self.chief_device):
            self.allotment_variable = tf.Variable(self._allotment, dtype=tf.int64, trainable=False)

    def start(self) -> None:
        """Make what needs the strategy to be complete."""
        self.rounds = Rounds(self._container_strategy())

    @property
    def _num_replicas_in_sync(self) -> int:
        return self._replicas

    def _use_merge_call(self) -> bool:
        return False

    def _resource_creator_scope(self) -> Any:
        return []

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """The device of each replica."""
        return tuple(self.worker_cpus[worker] for worker in self.owners())

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        """The devices that variables are on."""
        return tuple(self.server_devices)

    # Allotment.

    @property
    def allotment(self) -> tuple[int, ...]:
        """Replicas of each worker."""
        return self._allotment

    @allotment.setter
    def allotment(self, value: Sequence[int]) -> None:
        counts = tuple(int(count) for count in value)
        fits = len(counts) == self.worker_count and sum(counts) == self._replicas
        if not fits or min(counts) < 0:
            raise ValueError(
                f"the allotment {value!r} has to give each of the {self.worker_count} workers a "
                f"number of replicas, from 0, that add up to the {self._replicas} virtual replicas"
            )
        if not tf.executing_eagerly():
            raise RuntimeError("the allotment is set between rounds, not inside a tf.function")
        rows = [variable.rows() for variable in self.local_variables]
        self._allotment = counts
        self.allotment_variable.assign(self._allotment)
        for variable, row in zip(self.local_variables, rows, strict=True):
            variable.assign_rows(row)

    def owners(self) -> list[int]:
        """Return the worker of each replica."""
        return [w for w, count in enumerate(self._allotment) for _ in range(count)]

    # Slow workers, for studies.

    def set_delays(self, seconds: Sequence[float]) -> None:
        """Have each worker wait so long in each of its replicas, where `slowed` was on.

        Parameters
        ----------
        seconds
            Of each worker; from its next replica on.
        """
        for device, delay in zip(self.worker_cpus, seconds, strict=True):
            with tf.device(device):
                ops.set_delay(delay)

    # Variables.

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        if not tf.executing_eagerly():
            # An optimizer makes its slots in the first step, inside the function that is traced.
            initial = kwargs.get("initial_value")
            if not tf.compat.v1.executing_eagerly_outside_functions():
                raise RuntimeError(
                    "this strategy needs TensorFlow 2's eager execution: leave out "
                    "tf.Graph().as_default() and tf.compat.v1.disable_eager_execution()"
                )
            if private.is_graph_tensor(initial):
                raise ValueError(
                    f"the variable {kwargs.get('name')!r} is created inside a tf.function or "
                    "strategy.run, from a tensor of it: create it before, in strategy.scope(), or "
                    "give it a function as its initial value"
                )
            with tf.init_scope():
                return self._create_variable(private.create_variable, **kwargs)
        synchronization = kwargs.get("synchronization", tf.VariableSynchronization.AUTO)
        if synchronization == tf.VariableSynchronization.ON_READ:
            return self._create_local(next_creator, **kwargs)
        like = kwargs.get("colocate_with")
        if isinstance(like, ShardedServerVariable):
            return self._create_like(like, next_creator, **kwargs)
        if self._variable_partitioner is not None and like is None:
            kwargs = self._initialized_whole(**kwargs)
        variable = super()._create_variable(next_creator, **kwargs)
        if like is not None:
            self.placement.add(variable.server, _bytes(variable.shape, variable.dtype))
        if isinstance(variable, private.ShardedVariable):
            return ShardedServerVariable(variable.variables, kwargs.get("name") or "Variable")
        return variable

    def _initialized_whole(self, **kwargs: Any) -> dict[str, Any]:
        """Return a variable's arguments with a shape, which says how it is cut.

        A function that makes the initial value is called once, on the server that the first shard
        goes to, and its result is cut there.
        """
        initial, shape, dtype = (kwargs.get(k) for k in ("initial_value", "shape", "dtype"))
        known = None not in (shape, dtype)
        if callable(initial):
            if known and _bytes(shape, dtype) > _WHOLE_BYTES:
                # Initialized in parts, if the function can.
                return kwargs
            with private.no_colocation(), tf.device(self.server_devices[self.placement.next()]):
                value = tf.convert_to_tensor(initial(), dtype)
        elif initial is not None:
            value = tf.convert_to_tensor(initial, dtype)
        else:
            return kwargs

        def part(partition_shape: Any = None, partition_offset: Any = None) -> tf.Tensor:
            if partition_shape is None:
                return value
            with tf.device(value.device):
                return value[partition_offset[0] : partition_offset[0] + partition_shape[0]]

        return kwargs | {"initial_value": part, "shape": value.shape, "dtype": value.dtype}

    def _create_like(
        self, like: ShardedServerVariable, next_creator: Callable[..., Any], **kwargs: Any
    ) -> ShardedServerVariable:
        """Create a variable, such as an optimizer's slot, that is cut as another one."""
        initial, name = kwargs.pop("initial_value"), kwargs.pop("name", None) or "Variable"
        with tf.device(like.device):
            value = tf.convert_to_tensor(
                initial() if callable(initial) else initial, kwargs.get("dtype")
            )
        if value.shape != like.shape:
            raise NotImplementedError(
                f"{name} has shape {value.shape} and belongs to {like.name}, which has shape "
                f"{like.shape} and is cut into shards: use an optimizer whose slots have the "
                "variable's shape, or a variable_partitioner that does not cut the variable"
            )
        kwargs.pop("shape", None)
        shards = []
        for i, shard in enumerate(like.shards):
            with tf.device(value.device):
                own = part_of(None, value, like.bounds, i)
            kwargs |= {"initial_value": own, "name": f"{name}/part_{i}", "colocate_with": shard}
            shards.append(self._create_variable(next_creator, **kwargs))
        return ShardedServerVariable(shards, name)

    def _create_var_creator(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        aggregation = kwargs.get("aggregation") or tf.VariableAggregation.NONE

        def create(**kwargs: Any) -> ServerVariable:
            initial, device = kwargs.get("initial_value"), private.current_device()
            if callable(initial):
                kwargs["initial_value"] = lambda: to_server(initial(), device)
            else:
                kwargs["initial_value"] = to_server(initial, device)
            variable = next_creator(**kwargs)
            server = tf.DeviceSpec.from_string(variable.device).task
            if variable.shape.is_fully_defined():
                self.contents[server].append(variable.shape.num_elements() * variable.dtype.size)
            return ServerVariable(variable, server, aggregation, self._replicas)

        return create

    def _create_variable_round_robin(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        server = self.placement.next()
        with private.no_colocation(), tf.device(self.server_devices[server]):
            variable = next_creator(**kwargs)
        self.placement.add(server, _bytes(variable.shape, variable.dtype))
        return variable

    def _create_local(self, next_creator: Callable[..., Any], **kwargs: Any) -> LocalVariable:
        aggregation = kwargs.pop("aggregation", None) or tf.VariableAggregation.NONE
        name = kwargs.pop("name", None) or "Variable"
        kwargs.pop("colocate_with", None)
        kwargs.pop("shape", None)
        initial, dtype = kwargs.pop("initial_value", None), kwargs.pop("dtype", None)
        value = tf.convert_to_tensor(initial() if callable(initial) else initial, dtype)
        owners = self.owners()
        parts = []
        for worker, device in enumerate(self.worker_cpus):
            mask = tf.constant([owner == worker for owner in owners])
            rows = tf.stack([value if own else tf.zeros_like(value) for own in mask.numpy()])
            with private.no_colocation(), tf.device(device):
                parts.append(next_creator(initial_value=rows, name=f"{name}_{worker}", **kwargs))
        variable = LocalVariable(parts, aggregation, self.owners, f"{name}:0")
        self.local_variables.append(variable)
        return variable

    def on_worker(self, tensor: tf.Tensor, worker: int) -> tf.Tensor:
        """Return what stands on a worker for a tensor that the workers' program captured."""
        for variable in self.local_variables:
            if variable.parts[0].handle is tensor:
                return variable.parts[worker].handle
        return tensor

    # Replicas.

    def _call_for_each_replica(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        with explain_traced_values():
            return self.rounds.run(fn, args, kwargs)

    def _replica_ctx_all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        del options
        trace = traces.current()
        if isinstance(value, list | tuple):
            return [trace.all_reduce(reduce_op, v) for v in value]
        return trace.all_reduce(reduce_op, value)

    def _replica_ctx_update(
        self,
        var: Any,
        fn: Callable[..., Any],
        args: Any = (),
        kwargs: Any = None,
        group: bool = True,
    ) -> None:
        del group
        trace = traces.current()
        updates = [(var, fn, args, kwargs)]
        if isinstance(var, ShardedServerVariable):
            updates = list(shard_updates(var, fn, args, kwargs))
        for update in updates:
            trace.update(*update)

    def _update(self, var: Any, fn: Callable[..., Any], args: Any, kwargs: Any, group: bool) -> Any:
        if isinstance(var, ShardedServerVariable):
            updates = shard_updates(var, fn, args, kwargs)
            results = [self._update(*update, group) for update in updates]
            return self._group(results) if group else results
        device = self.server_devices[var.server] if isinstance(var, ServerVariable) else var.device
        with tf.device(device), private.distribute_lib.UpdateContext(0):
            result = fn(var, *args, **kwargs)
        if group:
            return self._group(result)
        return tf.nest.map_structure(self._local_results, result)

    def value_container(self, value: Any) -> Any:
        """Return the container of a value: each variable is its own."""
        return value

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        def check(leaf: Any) -> Any:
            if isinstance(leaf, MicroBatches):
                return leaf.even()
            if isinstance(leaf, private.values.DistributedValues) or self._replicas == 1:
                return leaf
            if reduce_op == tf.distribute.ReduceOp.SUM and not _is_zero(leaf):
                raise ValueError(
                    f"{leaf!r} is one value, not one for each of the {self._replicas} replicas, "
                    "and cannot be summed over them: reduce what strategy.run returned, or use "
                    "MEAN"
                )
            return leaf

        value = tf.nest.map_structure(check, value)
        return super()._reduce_to(reduce_op, value, destinations, options)

    # Data.

    def _experimental_distribute_dataset(self, dataset: tf.data.Dataset, options: Any) -> Any:
        del options
        return BatchDataset(self._container_strategy(), dataset)

    def _distribute_datasets_from_function(self, dataset_fn: Any, options: Any) -> Any:
        del options
        return WorkerDatasets(self._container_strategy(), dataset_fn)

    def _gather_to_implementation(
        self, value: Any, destinations: Any, axis: int, options: Any
    ) -> tf.Tensor:
        del destinations, options
        if isinstance(value, private.values.DistributedValues):
            return tf.concat(list(value.values), axis)
        return tf.concat([value] * self._replicas, axis)


def _is_zero(value: Any) -> bool:
    return not private.is_graph_tensor(value) and np.ndim(value) == 0 and value == 0


def _bytes(shape: Any, dtype: Any) -> int:
    return int(tf.TensorShape(shape).num_elements() or 0) * int(tf.as_dtype(dtype).size)
