"""`ParameterServerStrategy`, which takes the place of tf.distribute's."""

from __future__ import annotations

import logging
import numbers
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tf_rdmabatch import _logs, ops
from tf_rdmabatch.strategy import _tensorflow as private
from tf_rdmabatch.strategy.addresses import check_resolved
from tf_rdmabatch.strategy.contact import fetch_from_chief
from tf_rdmabatch.strategy.describe import describe_job
from tf_rdmabatch.strategy.engines import EngineSettings, check_rules, start_engines
from tf_rdmabatch.strategy.extended import SynchronousExtended
from tf_rdmabatch.strategy.resolver import find_resolver, require_chief, task_addresses
from tf_rdmabatch.strategy.stats import task_stats
from tf_rdmabatch.strategy.watch import run_while_up, wait_for_tasks, watch
from tf_rdmabatch.transports import Transport

LOGGER = logging.getLogger("tf_rdmabatch")
# Virtual replicas of each worker, where nothing else is said.
REPLICAS_PER_WORKER = 2
# Bytes that a block may have: a cache line, and what fits into a message.
_LEAST_BLOCK, _LARGEST_BLOCK = 64, 512 << 20


class ParameterServerStrategy(private.pss.ParameterServerStrategyV2):  # type: ignore[misc]
    """Parameter-server training whose parameters travel through the batched RDMA engine.

    Made in the chief's process; the others call `tf_rdmabatch.serve`. Synchronous training gives
    the results of `tf.distribute.MirroredStrategy` with `num_virtual_replicas` replicas, however
    many workers there are and however the replicas are allotted to them.

    Parameters
    ----------
    cluster_resolver
        Describes the cluster; None is TF_CONFIG.
    variable_partitioner
        Says into how many parts along its first axis a variable is cut, such as a
        `tf.distribute.experimental.partitioners.MinSizePartitioner`.
    consistency
        ``"bsp"``: synchronous rounds, for `run` and Keras `fit`. ``"asp"``: the asynchronous model
        of `tf.distribute.ParameterServerStrategy`, for `tf.distribute.coordinator`; its variables
        travel through TensorFlow's gRPC, and the arguments below are for ``"bsp"``.
    num_virtual_replicas
        Into how many micro-batches each batch is cut. None is 2 for each worker. More let work move
        between workers in smaller steps.
    transport
        ``"auto"``: shared memory between tasks of one host that share it, ``"verbs"`` where both
        hosts have an RDMA device and reach each other with it, else ``"tcp"``; one that fails to
        connect is left for the next, with a warning. A name, such as ``"tcp"``, for all
        connections; a mapping for those of some tasks, by task, job or ``"*"``:
        ``{"/job:ps/task:1": "tcp", "worker": "auto", "*": "verbs"}``. None is what the environment
        variable TF_RDMABATCH_TRANSPORT says (``tcp``, ``ps:1=tcp,*=auto``), else ``"auto"``.
    ports
        The range of ports that the tasks' engines listen at, ``"20000-20100"``, for firewalls. None
        is what TF_RDMABATCH_PORTS says in this process's environment, or in the task's; without it
        they take any free ports.
    block_size
        Bytes that a gradient is cut into to travel. None is as much as a message slot holds.
        ``"auto"``: each worker tries what fits into a slot, in its first rounds, keeps what makes
        rounds shortest and logs that; results do not depend on it.
    confirm
        ``"batch"``: chains of messages are confirmed together. ``"each"``: one by one, which is
        there to be compared with.
    start_timeout
        Seconds to wait for all workers and parameter servers to come up.
    task_timeout
        Seconds after which a worker or parameter server that does not answer counts as lost. One
        whose process has ended is noticed at once, one whose host does not answer in about three.

    Raises
    ------
    ValueError
        There is no cluster, or an argument is wrong.
    RuntimeError
        This process is not the chief's.
    tf.errors.UnavailableError
        A task has not come up. Later, from what trains: a task was lost.
    """

    def __init__(
        self,
        cluster_resolver: Any = None,
        variable_partitioner: Any = None,
        *,
        consistency: str = "bsp",
        num_virtual_replicas: int | None = None,
        transport: Transport = None,
        ports: str | None = None,
        block_size: int | str | None = None,
        confirm: str = "batch",
        start_timeout: float = 300.0,
        task_timeout: float = 30.0,
    ) -> None:
        if consistency not in ("bsp", "asp"):
            raise ValueError(f"consistency is 'bsp' or 'asp', not {consistency!r}")
        if confirm not in ("batch", "each"):
            raise ValueError(f"confirm is 'batch' or 'each', not {confirm!r}")
        _check_options(num_virtual_replicas, block_size)
        settings = EngineSettings.of(transport, ports, confirm, block_size == "auto")
        if start_timeout <= 0 or task_timeout <= 0:
            raise ValueError("start_timeout and task_timeout are positive numbers of seconds")
        resolver = find_resolver(cluster_resolver)
        require_chief(resolver)
        self.consistency = consistency
        self._timeouts = start_timeout, task_timeout
        if consistency == "asp":
            super().__init__(resolver, variable_partitioner)
            return
        check_rules(settings.transport, task_addresses(resolver))
        workers = resolver.cluster_spec().num_tasks("worker")
        replicas = (
            REPLICAS_PER_WORKER * workers if num_virtual_replicas is None else num_virtual_replicas
        )
        # The steps of the base class's constructor, with another Extended.
        self._cluster_resolver = resolver
        self._verify_args_and_config(resolver)
        self._connect_to_cluster(coordinator_name="chief")
        extended = SynchronousExtended(self, resolver, variable_partitioner, replicas)
        tf.distribute.Strategy.__init__(self, extended)
        self._should_use_with_coordinator = False
        self._canonicalize_devices = False
        self._is_parameter_server_strategy_v2 = True
        self._start_engines(settings, block_size)
        fetch_from_chief([*extended.worker_cpus, *extended.server_devices])
        extended.start()

    @property
    def _cluster_coordinator(self) -> Any:
        return self.__dict__.get("_coordinator")

    @_cluster_coordinator.setter
    def _cluster_coordinator(self, coordinator: Any) -> None:
        if coordinator is not None and self.consistency == "bsp":
            raise RuntimeError(
                "a ClusterCoordinator schedules asynchronous steps, and this strategy is "
                "synchronous: call strategy.run (or Keras fit) instead, or create "
                "ParameterServerStrategy(consistency='asp')"
            )
        self.__dict__["_coordinator"] = coordinator

    def _connect_to_cluster(self, coordinator_name: str) -> None:
        start_timeout, task_timeout = self._timeouts
        tasks = task_addresses(self._cluster_resolver)
        wait_for_tasks(tasks, start_timeout)
        check_resolved(tasks)
        watch(tasks, task_timeout)
        connect = super()._connect_to_cluster
        run_while_up(lambda: connect(coordinator_name), tasks, task_timeout)

    def _start_engines(self, settings: EngineSettings, block_size: int | str | None) -> None:
        _logs.show()
        extended = self.extended
        extended.parameters.block_bytes = -1 if settings.tune_blocks else int(block_size or 0)
        tasks = task_addresses(self._cluster_resolver)
        devices = {f"{job}:{i}": device for job, i, device in self._tasks()}
        connections = start_engines(tasks, {name: devices[name] for name in tasks}, settings)
        named = {name: tasks[name] for name in devices}
        LOGGER.info("%s", describe_job(named, connections, self.num_replicas_in_sync, block_size))

    def _tasks(self) -> Iterator[tuple[str, int, str]]:
        """Yield job, index and device of each task that has an engine."""
        if self.consistency == "asp":
            raise RuntimeError("an asynchronous strategy has no rounds and no figures of them")
        extended = self.extended
        for job, devices in (("worker", extended.worker_cpus), ("ps", extended.server_devices)):
            for i, device in enumerate(devices):
                yield job, i, device

    def stats(self) -> dict[str, dict[str, Any]]:
        """Return what each task has done since the strategy was created.

        Returns
        -------
        dict
            By the task's name (``"worker:0"``, ``"ps:0"``) a dict with

            - ``bytes_sent``, ``bytes_received``: payload of messages, and of memory that the task
              wrote and read at its peers: a pull is a read, of which the server knows nothing;
            - ``messages``, ``messages_sent``, ``messages_received``; ``doorbells``: chains of work
              requests handed to the device;
            - ``rounds``: those it had part in; ``micro_steps`` of a worker: replicas that it ran;
            - ``block_bytes`` of a worker: under ``block_size="auto"`` what it cuts gradients into
              now, else 0;
            - in seconds, of a worker ``pull_s``, ``compute_s`` (up to the last gradient) and
              ``push_s`` (from then on), of a server ``publish_s``, ``collect_s`` and ``update_s``;
            - ``wait_s``: seconds blocked in a round by others: until variables were published,
              until there was room for a push, until gradients had arrived. No part of the above;
            - ``idle_s``: seconds between rounds: for the others' ends, and for the chief;
            - ``transports``: a dict of what carries its connections, by the peer's name: ``"shm"``.

        Raises
        ------
        RuntimeError
            The strategy is asynchronous, or this is not eager mode.
        tf.errors.UnavailableError
            A task was lost.
        """
        return {
            f"{job}:{i}": task_stats(
                job, self._ask(device, ops.stats), self._ask(device, ops.transports)
            )
            for job, i, device in self._tasks()
        }

    def round_times(self, last: int = 1024) -> dict[str, npt.NDArray[np.void]]:
        """Return when each task did what in its last rounds.

        Parameters
        ----------
        last
            Number of rounds; each task remembers 1024.

        Returns
        -------
        dict
            By the task's name an array of shape (rounds,); `tf_rdmabatch.ops.round_times` explains
            its fields. Times of tasks on one host can be compared.

        Raises
        ------
        RuntimeError
            The strategy is asynchronous, or this is not eager mode.
        tf.errors.UnavailableError
            A task was lost.
        """
        return {
            f"{job}:{i}": self._ask(device, lambda: ops.round_times(last))
            for job, i, device in self._tasks()
        }

    def round_reports(self, after: int = 0) -> npt.NDArray[np.void]:
        """Return what the workers reported of their last rounds.

        Each report came with its round's results: nobody is asked, and it costs microseconds.

        Parameters
        ----------
        after
            The number of a round: only later ones are returned.

        Returns
        -------
        np.ndarray
            A structured array of shape (rounds, workers), of at most 64 rounds, the oldest first.
            Its fields are ``number``, of the round, and those of a worker that
            `tf_rdmabatch.ops.round_times` explains; zeros where there was no report.

        Raises
        ------
        RuntimeError
            The strategy is asynchronous, or this is not eager mode.
        """
        if self.consistency == "asp" or not tf.executing_eagerly():
            raise RuntimeError("rounds are synchronous, and reported between rounds, not in them")
        return self.extended.rounds.reports(after)  # type: ignore[no-any-return]

    def _ask(self, device: str, question: Callable[[], Any]) -> Any:
        if not tf.executing_eagerly():
            raise RuntimeError("a job's figures are known between rounds, not in a tf.function")
        with tf.device(device):
            return question()

    @property
    def allotment(self) -> tuple[int, ...]:
        """How many virtual replicas each worker runs in a round. May be set between rounds."""
        return self.extended.allotment  # type: ignore[no-any-return]

    @allotment.setter
    def allotment(self, value: Sequence[int]) -> None:
        self.extended.allotment = value

    def run(
        self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: Any = None
    ) -> Any:
        """Run `fn` in each virtual replica; see `tf.distribute.Strategy.run`.

        In eager mode too `fn` is traced, as a `tf.function` is, and called again without Python; a
        `tf.function` is part of that trace.

        Raises
        ------
        NotImplementedError
            XLA is to compile the round.
        """
        if self.consistency == "asp":
            return super().run(fn, args, kwargs, options)
        if not tf.executing_eagerly() and private.is_compiled(private.current_graph()):
            raise NotImplementedError(
                "strategy.run was called in a tf.function with jit_compile=True, and XLA cannot "
                "compile the traffic between tasks: use model.compile(..., jit_compile=False), or "
                "give jit_compile=True to functions inside of the one that strategy.run calls"
            )
        with self.extended.rounds.named(fn):
            return super().run(private.python_function(fn), args, kwargs, options)


def _check_options(num_virtual_replicas: int | None, block_size: int | str | None) -> None:
    if num_virtual_replicas is not None and not _is_count(num_virtual_replicas, 1):
        raise ValueError(
            "num_virtual_replicas is the number of parts that a batch is cut into, from 1, not "
            f"{num_virtual_replicas!r}"
        )
    if block_size not in (None, "auto") and not _is_count(block_size, _LEAST_BLOCK, _LARGEST_BLOCK):
        raise ValueError(
            f"block_size is a number of bytes from {_LEAST_BLOCK} to {_LARGEST_BLOCK}, 'auto' or "
            f"None, not {block_size!r}"
        )


def _is_count(value: Any, least: int, most: float = float("inf")) -> bool:
    return isinstance(value, numbers.Integral) and least <= int(value) <= most
