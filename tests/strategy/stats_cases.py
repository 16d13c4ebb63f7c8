"""Cases of what a job says of itself."""

from __future__ import annotations

import logging
import time
from typing import Any

import numpy as np
import tensorflow as tf

from tf_rdmabatch.strategy.stats import communication_seconds, step_seconds

ROUNDS = 5


def rounds(strategy: Any) -> dict[str, Any]:
    """Stats before and after some rounds of one variable, and the times of these rounds."""
    with strategy.scope():
        weights = tf.Variable(tf.ones([1000, 10]), aggregation=tf.VariableAggregation.SUM)

    def replica() -> None:
        weights.assign_add(weights * 0.1)

    @tf.function
    def step() -> None:
        strategy.run(replica)

    begin = time.perf_counter()
    step()
    before = strategy.stats()
    for _ in range(ROUNDS):
        step()
    seconds = time.perf_counter() - begin
    after = strategy.stats()
    result = {
        f"{task} {name}": np.asarray(value - before[task][name])
        for task, values in after.items()
        for name, value in values.items()
        if name != "transports"
    }
    for task, times in strategy.round_times(ROUNDS).items():
        result |= {f"{task} rounds {field}": times[field] for field in times.dtype.names}
        result[f"{task} rounds step_s"] = step_seconds(times)
        result[f"{task} rounds communication_s"] = communication_seconds(times)
    reports = strategy.round_reports()
    for worker in range(reports.shape[1]):
        for field in reports.dtype.names:
            result[f"worker:{worker} reports {field}"] = reports[-ROUNDS:, worker][field]
    number = int(reports["number"][-3, 0])
    result["reports after"] = strategy.round_reports(number)["number"][:, 0] - number
    return result | {"seconds": np.asarray(seconds)}


def first_round(strategy: Any) -> dict[str, Any]:
    """What the strategy logs with its first round."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler = Keep()
    logging.getLogger("tf_rdmabatch").addHandler(handler)
    strategy.extended.rounds._logged = False
    with strategy.scope():
        variable = tf.Variable(tf.ones([1000]))

    def replica() -> Any:
        return variable * 2.0

    for _ in range(2):
        strategy.run(replica)
    logging.getLogger("tf_rdmabatch").removeHandler(handler)
    return {"lines": np.asarray(lines)}
