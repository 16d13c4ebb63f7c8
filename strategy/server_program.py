"""What the servers do in a round: publish, collect, update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_rdmabatch import ops
from tf_rdmabatch.strategy import _tensorflow as private
from tf_rdmabatch.strategy import wire
from tf_rdmabatch.strategy.plan import Contribution, Plan
from tf_rdmabatch.strategy.trace import Reduction, Snapshot, Update
from tf_rdmabatch.strategy.worker_program import grouped


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
    step
        The round's number, int64.
    """

    def __init__(self, plan: Plan, devices: Sequence[str], replicas: int, step: tf.Tensor) -> None:
        self._plan = plan
        self._trace = plan.trace
        self._devices = devices
        self._replicas = replicas
        self._step = step
        self._collected: dict[int, tf.Tensor] = {}
        self._lifted: dict[Any, tf.Tensor] = {}
        self._snapshots: dict[int, tf.Tensor] = {}

    def build(self) -> None:
        """Publish what the workers pull, collect what they push, apply the updates in order."""
        self._publish()
        self._collect()
        for event in self._trace.events:
            if isinstance(event, Update):
                self._update(event)
            else:
                self._snapshot(event)

    def _publish(self) -> None:
        variables = [variable for variable, _ in self._trace.pulls.values()]
        parameters = [self._plan.pulled_parameter(v) for v in variables]
        for group in grouped(parameters):
            with tf.device(self._devices[parameters[group[0]].server]):
                ops.publish_many(
                    [parameters[i].handle() for i in group],
                    [wire.encode(variables[i].get().read_value(), variables[i].name) for i in group],
                    self._step,
                )

    def _collect(self) -> None:
        contributions = self._plan.contributions
        for first in (False, True):
            some = [c for c in contributions if c.parameter.first == first]
            for group in grouped([c.parameter for c in some]):
                self._collect_group([some[i] for i in group])

    def _collect_group(self, contributions: Sequence[Contribution]) -> None:
        with tf.device(self._devices[contributions[0].parameter.server]):
            values = ops.collect_many([c.parameter.handle() for c in contributions], self._step)
            for contribution, value in zip(contributions, values, strict=True):
                self._collected[id(contribution)] = wire.decode(value, contribution.value.dtype)

    def _update(self, update: Update) -> None:
        server = update.variable.server
        with tf.device(self._devices[server]):
            args, kwargs = tf.nest.map_structure(
                lambda a: self._resolve(a, server), (list(update.args), update.kwargs)
            )
            with private.distribute_lib.UpdateContext(0):
                update.function(update.variable, *args, **kwargs)

    def _resolve(self, value: Any, server: int) -> Any:
        flat = tf.nest.flatten(value, expand_composites=True)
        lifted = [self._lift(t, server) if private.is_graph_tensor(t) else t for t in flat]
        return tf.nest.pack_sequence_as(value, lifted, expand_composites=True)

    def _lift(self, tensor: tf.Tensor, server: int) -> tf.Tensor:
        return self._plan.lifter.lift(tensor, lambda leaf: self._leaf(leaf, server))

    def _leaf(self, leaf: tf.Tensor, server: int) -> tf.Tensor:
        source = self._trace.pending.get(leaf.op.name)
        if isinstance(source, Snapshot):
            return self._snapshots[id(source)]
        collected = self._collected[id(self._plan.contribution(leaf, server))]
        if isinstance(source, Reduction) and source.mean:
            return collected / tf.cast(self._replicas, collected.dtype)
        return collected

    def _snapshot(self, snapshot: Snapshot) -> None:
        if id(snapshot) in self._plan.needed_snapshots:
            with tf.device(self._devices[snapshot.variable.server]):
                self._snapshots[id(snapshot)] = tf.identity(snapshot.variable.get().read_value())

