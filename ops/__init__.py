"""TensorFlow ops over the engine, with or without the strategy.

Each process of a job is a task: `configure` starts its engine, `connect` connects it to the
parameter servers. `parameter_handle` names a parameter on a device; the server's device serves it
(`serve`), publishes its value under increasing versions (`publish`) and collects what the workers
pushed (`collect`); the workers' devices `pull` a version and `push` a contribution. All of them are
ops, in eager mode and inside a `tf.function`, and none blocks a thread while it waits.

TensorFlow runs the eager ops of other processes asynchronously: a `push` or `publish` that fails
raises with one of the ops that follow. Inside a `tf.function` it fails the call.
"""

from __future__ import annotations

from tf_rdmabatch.ops.parameters import (
    ParameterHandle,
    collect,
    collect_many,
    parameter_handle,
    publish,
    publish_many,
    publish_variable,
    publish_variables,
    pull,
    pull_many,
    push,
    push_many,
    push_nothing,
    serve,
)
from tf_rdmabatch.ops.task import configure, connect, round_times, stats, transports, updated

__all__ = [
    "ParameterHandle",
    "collect",
    "collect_many",
    "configure",
    "connect",
    "parameter_handle",
    "publish",
    "publish_many",
    "publish_variable",
    "publish_variables",
    "pull",
    "pull_many",
    "push",
    "push_many",
    "push_nothing",
    "round_times",
    "serve",
    "stats",
    "transports",
    "updated",
]
