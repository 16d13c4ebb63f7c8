"""TensorFlow ops over the engine, with or without the strategy.

Each process of a job is a task: `configure` starts its engine, `connect` connects it to the
parameter servers. `parameter` describes one that is a tensor, `pack` one that is many; the server's
process serves it (`serve`), publishes its value under increasing versions (`publish`) and collects
what the workers pushed (`collect`); the workers `pull` a version and `push` a contribution, each by
way of a handle on its device. All of them are ops, in eager mode and inside a `tf.function`, and
none blocks a thread while it waits.

TensorFlow runs the eager ops of other processes asynchronously: a `push` or `publish` that fails
raises with one of the ops that follow. Inside a `tf.function` it fails the call.
"""

from __future__ import annotations

from tf_rdmabatch.ops.delays import arrival, delay, set_delay
from tf_rdmabatch.ops.parameters import (
    Parameter,
    ParameterHandle,
    collect,
    pack,
    parameter,
    publish,
    publish_variable,
    pull,
    push,
    push_nothing,
    release,
    serve,
)
from tf_rdmabatch.ops.task import (
    REPORT_FIELDS,
    configure,
    connect,
    round_report,
    round_times,
    software,
    stats,
    transports,
    updated,
)

__all__ = [
    "REPORT_FIELDS",
    "Parameter",
    "ParameterHandle",
    "arrival",
    "collect",
    "configure",
    "connect",
    "delay",
    "pack",
    "parameter",
    "publish",
    "publish_variable",
    "pull",
    "push",
    "push_nothing",
    "release",
    "round_report",
    "round_times",
    "serve",
    "set_delay",
    "software",
    "stats",
    "transports",
    "updated",
]
