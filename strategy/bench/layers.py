"""A step of layers whose computing takes no processor, as where an accelerator does it.

On one host, what communicates needs the processors too: only beside such computing is there
anything that can be hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_rdmabatch import ops
from tf_rdmabatch.strategy.bench.programs import RATE, Program, make_variables

# Of a layer: one forward, two back.
_DELAYS = 3


def make_layers(strategy: Any, shapes: Sequence[Sequence[int]]) -> Program:
    """Create a variable for each layer and return the step that goes forward and back through them.

    A layer computes as long as `set_compute_seconds` says: twice as long back as forward, since
    there are a gradient of its weights and one of its inputs. It begins when the one before it has
    ended and its weights are there, as where an accelerator has its work queued ahead: how late a
    thread of the host notices that is no part of computing.

    Parameters
    ----------
    strategy
        In whose scope the variables are created.
    shapes
        Of the variables, in the order of the layers.
    """
    variables = make_variables(strategy, shapes)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def step() -> None:
        values: list[tf.Tensor] = []
        ends: list[tf.Tensor] = []
        for variable in variables:
            values.append(variable.read_value())
            # A layer waits for the one before it, and for its own weights.
            ends = [ops.delay([*ends, ops.arrival(values[-1])])]
        for variable, value in zip(reversed(variables), reversed(values), strict=True):
            ends = [ops.delay([ops.delay(ends)])]
            with tf.control_dependencies(ends):
                gradient = value * RATE
            variable.assign_sub(gradient)

    return Program(step, variables)


def make_delays(layers: int) -> Callable[[], None]:
    """Return a step that computes as the one of `make_layers` does, and nothing else."""

    def step() -> None:
        ends: list[tf.Tensor] = []
        for _ in range(_DELAYS * layers):
            ends = [ops.delay(ends)]

    without_autograph: Callable[[], None] = tf.autograph.experimental.do_not_convert(step)
    return without_autograph


def set_compute_seconds(workers: int, layers: int, seconds: float) -> None:
    """Set how long steps of so many layers compute on each worker."""
    for worker in range(workers):
        with tf.device(f"/job:worker/replica:0/task:{worker}/device:CPU:0"):
            ops.set_delay(seconds / (_DELAYS * layers))
