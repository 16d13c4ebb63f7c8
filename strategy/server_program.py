"""What the servers do in a round: publish, collect, update."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_rdmabatch import ops
from tf_rdmabatch.strategy import _tensorflow as private
from tf_rdmabatch.strategy import wire
from tf_rdmabatch.strategy.lifting import Done, copy_into_current_graph
from tf_rdmabatch.strategy.parameters import grouped
from tf_rdmabatch.strategy.plan import Contribution, Plan
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
    version
        The round's number, int64.
    step
        The number of the round among the program's, int64.
    gather
        Returns all replicas' rows of a tensor that the workers return.
    """

    def __init__(
        self,
        plan: Plan,
        devices: Sequence[str],
        replicas: int,
        version: tf.Tensor,
        step: tf.Tensor,
        gather: Callable[[tf.Tensor], tf.Tensor],
    ) -> None:
        self._plan = plan
        self._trace = plan.trace
        self._devices = devices
        self._replicas = replicas
        self._version = version
        self._step = step
        self._gather = gather
        self._collected: dict[int, tf.Tensor] = {}
        self._initial: dict[int, tf.Tensor] = {}
        self._snapshots: dict[int, tf.Tensor] = {}
        # What each server computed, by the replica's tensors.
        self._done: list[Done] = [{} for _ in devices]

    def build(self) -> None:
        """Publish what the workers pull, collect what they push, apply the updates in order."""
        self._publish()
        self._collect()
        for key, variable in self._plan.initial.items():
            self._initial[key] = self._read(variable)
        events = [e for e in self._trace.events if self._is_needed(e)]
        for (branch, _), group in itertools.groupby(events, self._group_of):
            if branch is None:
                self._apply(list(group))
            else:
                self._apply_in_branch(branch, list(group))
        self._note_updates(events)

    def _note_updates(self, events: Sequence[Update | Snapshot]) -> None:
        """Have each server note when it was done, for `ParameterServerStrategy.round_times`."""
        handles: dict[int, dict[int, tf.Tensor]] = defaultdict(dict)
        for variable in (e.variable for e in events if isinstance(e, Update)):
            handles[variable.server][id(variable)] = variable.get().handle
        for server, updated in handles.items():
            with tf.device(self._devices[server]):
                private.declare_reader(ops.updated(list(updated.values()), self._step))

    def _is_needed(self, event: Update | Snapshot) -> bool:
        return isinstance(event, Update) or id(event) in self._plan.needed_snapshots

    @staticmethod
    def _group_of(event: Update | Snapshot) -> tuple[Any, int]:
        """Return what consecutive events of one tf.cond on a server have in common."""
        branch = event.branch if isinstance(event, Update) else None
        return branch, event.variable.server

    def _publish(self) -> None:
        variables = [variable for variable, _ in self._trace.pulls.values()]
        parameters = [self._plan.pulled_parameter(v) for v in variables]
        for group in grouped(parameters):
            with tf.device(self._devices[parameters[group[0]].server]):
                handles = [parameters[i].on_server for i in group]
                values = [
                    wire.encode(v.get().read_value(), v.name)
                    for v in map(variables.__getitem__, group)
                ]
                ops.publish_many(handles, values, self._version)

    def _collect(self) -> None:
        contributions = self._plan.contributions
        for first in (False, True):
            some = [c for c in contributions if c.parameter.first == first]
            for group in grouped([c.parameter for c in some]):
                self._collect_group([some[i] for i in group])

    def _collect_group(self, contributions: Sequence[Contribution]) -> None:
        with tf.device(self._devices[contributions[0].parameter.server]):
            values = ops.collect_many([c.parameter.on_server for c in contributions], self._step)
            for contribution, value in zip(contributions, values, strict=True):
                self._collected[id(contribution)] = wire.decode(value, contribution.value.dtype)

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
