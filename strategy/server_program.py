"""What the servers do in a round: publish, collect, update."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_rdmabatch import ops
from tf_rdmabatch.strategy import _tensorflow as private
from tf_rdmabatch.strategy import wire
from tf_rdmabatch.strategy.lifting import Done, copy_into_current_graph
from tf_rdmabatch.strategy.parameters import Handles, Pack
from tf_rdmabatch.strategy.plan import Plan
from tf_rdmabatch.strategy.trace import Gathered, Snapshot, Update


class ServerPrograms:
    """Adds the servers' part of a round to the current graph.

    Parameters
    ----------
    plan
        Of the workers' program.
    devices
        Of each server.
    replicas
        Number of virtual replicas.
    readings
        On each server: what workers contribute to when they have read.
    numbers
        int64: the round's number, and the number of the round among the program's.
    gather
        Returns all replicas' rows of a tensor that the workers return.
    """

    def __init__(
        self,
        plan: Plan,
        devices: Sequence[str],
        replicas: int,
        readings: Sequence[Any],
        numbers: tf.Tensor,
        gather: Callable[[tf.Tensor], tf.Tensor],
    ) -> None:
        self._plan = plan
        self._trace = plan.trace
        self._devices = devices
        self._replicas = replicas
        self._readings = readings
        # A copy on each server, of both numbers at once.
        self._numbers = [self._copy(numbers, device) for device in devices]
        self._handles = Handles(private.current_graph())
        self._gather = gather
        self._collected: dict[int, tf.Tensor] = {}
        self._initial: dict[int, tf.Tensor] = {}
        self._snapshots: dict[int, tf.Tensor] = {}
        # What each server computed, by the replica's tensors.
        self._done: list[Done] = [{} for _ in devices]

    @staticmethod
    def _copy(numbers: tf.Tensor, device: str) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.device(device):
            version, step = tf.unstack(tf.identity(numbers), num=2)
            return version, step

    def build(self) -> None:
        """Publish what the workers pull, collect what they push, apply the updates in order."""
        for pack in self._plan.pulled:
            self._publish(pack)
        for pack in self._plan.pushed:
            self._collect(pack)
        readers = [self._await_readers(i) for i in sorted({p.server for p in self._plan.pulled})]
        for key, variable in self._plan.initial.items():
            self._initial[key] = self._read(variable)
        events = [e for e in self._trace.events if self._is_needed(e)]
        with tf.control_dependencies(readers):
            for (branch, _), group in itertools.groupby(events, self._group_of):
                if branch is None:
                    self._apply(list(group))
                else:
                    self._apply_in_branch(branch, list(group))

    def _is_needed(self, event: Update | Snapshot) -> bool:
        return isinstance(event, Update) or id(event) in self._plan.needed_snapshots

    @staticmethod
    def _group_of(event: Update | Snapshot) -> tuple[Any, int]:
        """Return what consecutive events of one tf.cond on a server have in common."""
        branch = event.branch if isinstance(event, Update) else None
        return branch, event.variable.server

    def _publish(self, pack: Pack) -> None:
        device = self._devices[pack.server]
        version, _ = self._numbers[pack.server]
        with tf.device(device):
            handle = self._handles(pack.parameter, device)
            variables = [v.get() for v in pack.members]
            if variables[0].dtype == pack.parameter.dtype:
                ops.publish_variable(handle, variables, version)
            else:
                values = [wire.encode(v.read_value(), v.name) for v in variables]
                ops.publish(handle, values, version)

    def _collect(self, pack: Pack) -> None:
        device = self._devices[pack.server]
        _, step = self._numbers[pack.server]
        with tf.device(device):
            values = ops.collect(self._handles(pack.parameter, device), step)
            for contribution, value in zip(pack.members, values, strict=True):
                self._collected[id(contribution)] = wire.decode(value, contribution.item.dtype)

    def _await_readers(self, server: int) -> tf.Tensor:
        """Return what is there when no worker reads the server's memory any more.

        Variables are updated where they are read.
        """
        device = self._devices[server]
        version, _ = self._numbers[server]
        with tf.device(device):
            return ops.collect(self._handles(self._readings[server], device), version)

    def _read(self, variable: Any) -> tf.Tensor:
        with tf.device(self._devices[variable.server]):
            return tf.identity(variable.get().read_value())

    def _apply(self, events: Sequence[Update | Snapshot]) -> None:
        for event in events:
            if isinstance(event, Snapshot):
                self._snapshots[id(event)] = self._read(event.variable)
            else:
                self._call(event)()

    def _apply_in_branch(self, branch: Any, updates: Sequence[Any]) -> None:
        server = updates[0].variable.server
        calls = [self._call(update) for update in updates]
        with tf.device(self._devices[server]):
            condition = self._lift(self._plan.condition(branch), server)

            def apply() -> None:
                for call in calls:
                    call()

            tf.cond(condition, apply, lambda: None)

    def _call(self, update: Update) -> Callable[[], None]:
        """Return what does an update; its arguments are computed before."""
        server = update.variable.server
        with tf.device(self._devices[server]):
            args, kwargs = tf.nest.map_structure(
                lambda a: self._resolve(a, server), (list(update.args), update.kwargs)
            )

        def call() -> None:
            with tf.device(self._devices[server]), private.distribute_lib.UpdateContext(0):
                update.function(update.variable, *args, **kwargs)

        return call

    def _resolve(self, value: Any, server: int) -> Any:
        flat = tf.nest.flatten(value, expand_composites=True)
        if not any(private.is_graph_tensor(t) for t in flat):
            return value
        lifted = [self._lift(t, server) if private.is_graph_tensor(t) else t for t in flat]
        return tf.nest.pack_sequence_as(value, lifted, expand_composites=True)

    def _lift(self, tensor: tf.Tensor, server: int) -> tf.Tensor:
        return copy_into_current_graph(tensor, lambda t: self._leaf(t, server), self._done[server])

    def _leaf(self, tensor: tf.Tensor, server: int) -> tf.Tensor | None:
        if not self._plan.is_leaf(tensor):
            return None
        known = self._known(tensor)
        if known is not None:
            return known
        return self._collected_value(tensor, server)

    def _known(self, leaf: tf.Tensor) -> tf.Tensor | None:
        """Return a leaf that needs no contribution: a variable's value, or the replicas' rows."""
        source = self._trace.pending.get(leaf.op.name)
        if isinstance(source, Snapshot):
            return self._snapshots[id(source)]
        if isinstance(source, Gathered):
            return self._gather(source.value)
        variable = self._plan.variable_read(leaf)
        return None if variable is None else self._initial[id(variable)]

    def _collected_value(self, leaf: tf.Tensor, server: int) -> tf.Tensor:
        contribution, average = self._plan.contribution(leaf, server)
        collected = self._collected[id(contribution)]
        return collected / tf.cast(self._replicas, collected.dtype) if average else collected

    def output(
        self, tensor: tf.Tensor, of_replica: Callable[[tf.Tensor], tf.Tensor], done: Done
    ) -> tf.Tensor:
        """Return a replica's result that depends on what only servers know.

        Parameters
        ----------
        tensor
            In the replica's graph.
        of_replica
            Returns the value that a leaf had in the replica.
        done
            What was computed for this replica, extended.
        """

        def resolve(t: tf.Tensor) -> tf.Tensor | None:
            if not self._plan.is_leaf(t):
                return None
            known = self._known(t)
            if known is not None:
                return known
            pending = t.op.name in self._trace.pending
            return self._collected_value(t, 0) if pending else of_replica(t)

        return copy_into_current_graph(tensor, resolve, done)
