"""Runs the test suites that others wrote and that ship in the wheels, under a strategy."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
import unittest
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

LIBRARY = "tensorflow.python.distribute.strategy_test_lib"
# Class and module.
SUITES = {
    "DistributionTestBase": LIBRARY,
    "OneDeviceDistributionTestBase": LIBRARY,
    "TwoDeviceDistributionTestBase": LIBRARY,
    "RemoteSingleWorkerMirroredStrategyBase": LIBRARY,
    "DistributeTest": "keras.src.backend.tensorflow.distribute_test",
    "OptimizerDistributeTest": "keras.src.backend.tensorflow.optimizer_distribute_test",
    "SwapEMAWeightsTest": "keras.src.callbacks.swap_ema_weights_test",
}
# What tf.distribute's tests call with a strategy, and not helpers.
_LIBRARY_CASE = re.compile(r"_test(?!_input_fn_iter|_collective_comms)")


class _Elements:
    """What `make_input_fn_iterator` of TensorFlow 1 returns: each replica gets the next element."""

    def __init__(self, strategy: Any, dataset_fn: Callable[..., Any]) -> None:
        self._strategy = strategy
        input_context = tf.distribute.InputContext(1, 0, strategy.num_replicas_in_sync)
        self._dataset = dataset_fn(input_context)

    def initialize(self) -> list[Any]:
        self._elements = iter(self._dataset)
        return []

    initializer = property(initialize)

    def get_next(self) -> Any:
        return self._strategy.experimental_distribute_values_from_function(
            lambda _: self._elements.get_next()
        )


class VersionOne:
    """A strategy with the methods of TensorFlow 1 that the library's cases feed their inputs by."""

    def __init__(self, strategy: Any) -> None:
        self._strategy = strategy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._strategy, name)

    def make_input_fn_iterator(self, dataset_fn: Callable[..., Any]) -> _Elements:
        return _Elements(self._strategy, dataset_fn)

    def experimental_run(self, function: Callable[..., Any], inputs: _Elements) -> Any:
        return self._strategy.run(function, args=(inputs.get_next(),))


def case_names(suite: str) -> list[str]:
    """Return the cases of a suite that are about strategies, those of parameters included."""
    cls = getattr(importlib.import_module(SUITES[suite]), suite)
    if SUITES[suite] != LIBRARY:
        names = unittest.TestLoader().getTestCaseNames(cls)
        return [name for name in names if _has_strategy(cls, name)]
    return sorted(
        name + options
        for name, method in vars(cls).items()
        if _LIBRARY_CASE.match(name)
        for options in _variants(method)
    )


def _has_strategy(cls: type, name: str) -> bool:
    """Return whether a case makes a strategy, or its class's setUp does."""
    functions = [vars(cls)[name], vars(cls).get("setUp", unittest.TestCase.setUp)]
    return any("Strategy" in inspect.getsource(f) for f in functions)


def _variants(method: Any) -> list[str]:
    both = "run_in_function" in method.__code__.co_varnames[: method.__code__.co_argcount]
    return ["", " in a tf.function"] if both else [""]


def _library_test(strategy: Any, suite: str, name: str) -> unittest.TestCase:
    base = getattr(importlib.import_module(LIBRARY), suite)
    method, _, in_function = name.partition(" ")
    options = {"run_in_function": True} if in_function else {}

    def run(self: Any) -> None:
        getattr(self, method)(VersionOne(strategy), **options)

    members = {"runTest": run, "_get_num_gpus": lambda _: strategy.num_replicas_in_sync}
    return type(suite, (base,), members)()  # type: ignore[no-any-return]


@contextlib.contextmanager
def _in_place_of_mirrored(strategy: Any) -> Iterator[None]:
    """Give what makes a MirroredStrategy on logical devices this strategy."""
    with (
        mock.patch.object(tf.distribute, "MirroredStrategy", return_value=strategy),
        mock.patch.object(tf.config, "set_logical_device_configuration"),
        mock.patch.object(context, "_reset_context"),
    ):
        yield


def run(strategy: Any, suite: str, name: str) -> dict[str, Any]:
    """Run a case; return what came of it."""
    if SUITES[suite] == LIBRARY:
        test = _library_test(strategy, suite, name)
    else:
        test = getattr(importlib.import_module(SUITES[suite]), suite)(name)
    result = unittest.TestResult()
    with _in_place_of_mirrored(strategy):
        test.run(result)
    wrong = [text for _, text in result.failures + result.errors]
    skipped = [reason for _, reason in result.skipped]
    outcome = f"failed: {wrong[0]}" if wrong else f"skipped: {skipped[0]}" if skipped else "passed"
    return {"outcome": np.asarray(outcome)}


def cases(_: Any) -> dict[str, Any]:
    """Return the names of all cases of each suite."""
    return {suite: np.asarray(case_names(suite)) for suite in SUITES}
