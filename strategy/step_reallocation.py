"""`StepReallocation`: moves micro-steps from stragglers to faster workers while training runs."""

from __future__ import annotations

import logging
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tf_rdmabatch.strategy.scalars import ScalarLog
from tf_rdmabatch.strategy.stats import (
    communication_seconds,
    round_seconds,
    step_seconds,
    wait_seconds,
)
from tf_rdmabatch.strategy.step_allocator import Decision, StepAllocator

LOGGER = logging.getLogger("tf_rdmabatch")
# The part of the time that may be spent on looking: of rounds that are shorter than 100 looks, some
# are left out. Seconds that a look takes, before it is known.
SHARE = 0.01
COST = 3e-4
# Rounds that `history` goes back.
KEPT = 1 << 16
# Rounds without a report, after which a worker is named in a warning.
SILENT = 20


class KerasCallback:
    """What Keras 2 and Keras 3 call of a callback, which each of them would have derived from."""

    async_safe = True
    # Keras 2: logs may stay tensors, since they are not looked at.
    _supports_tf_logs = True
    model: Any = None
    params: Any = None

    def set_params(self, params: Any) -> None:
        """Take what Keras says of the training."""
        self.params = params

    def set_model(self, model: Any) -> None:
        """Take the model that is trained."""
        self.model = model

    def _implements_train_batch_hooks(self) -> bool:
        return True

    def _implements_test_batch_hooks(self) -> bool:
        return False

    _implements_predict_batch_hooks = _implements_test_batch_hooks

    def _nothing(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing at this point."""

    on_batch_begin = on_batch_end = on_epoch_begin = on_epoch_end = _nothing
    on_train_begin = on_train_end = on_train_batch_begin = on_train_batch_end = _nothing
    on_test_begin = on_test_end = on_test_batch_begin = on_test_batch_end = _nothing
    on_predict_begin = on_predict_end = on_predict_batch_begin = on_predict_batch_end = _nothing


class StepReallocation(KerasCallback):
    """Moves micro-steps from stragglers to faster workers, from the times that they measured.

    The result of training stays what it is: each virtual replica computes what it did, elsewhere.
    As a callback of Keras 2 or 3::

        model.fit(dataset, callbacks=[tf_rdmabatch.StepReallocation()])

    in a loop of one's own, with one call for each round, or for each `tf.function` of several::

        reallocation = tf_rdmabatch.StepReallocation(strategy)
        for batch in dataset:
            train_step(batch)
            reallocation.update()

    A new allotment holds from the next round; where one call runs several rounds
    (``steps_per_execution``), from the next call. Moves are logged at INFO. A fault of the
    scheduling is logged as an error, and training goes on with the last allotment.

    Parameters
    ----------
    strategy
        A synchronous `ParameterServerStrategy`. None: that of the model that Keras trains.
    minimum
        Micro-steps that each worker keeps. None is 1, or 0 where there are more workers than
        virtual replicas.
    threshold
        The predicted gain, as a part of the slowest worker's round, below which nothing moves.
    probe_rounds
        With a minimum of 0, after so many rounds without a step a worker is tried again.
    log_dir
        Folder for TensorBoard: scalars of each worker's allotment, step time and waiting, by round.
    plot
        Path of a picture of the same, written when training ends; `matplotlib` is needed.

    Raises
    ------
    ValueError
        An argument is out of its range.
    ImportError
        There is to be a picture, and matplotlib is not installed.
    """

    def __init__(
        self,
        strategy: Any = None,
        *,
        minimum: int | None = None,
        threshold: float = 0.05,
        probe_rounds: int = 20,
        log_dir: str | Path | None = None,
        plot: str | Path | None = None,
    ) -> None:
        self._options = {"threshold": threshold, "probe_rounds": probe_rounds}
        self._minimum = minimum
        # Checks the arguments before training begins.
        StepAllocator(minimum or 1, 1, minimum=minimum or 0, **self._options)  # type: ignore[arg-type]
        if plot is not None:
            from tf_rdmabatch.strategy import reallocation_plot  # noqa: F401, PLC0415
        self._plot = plot
        self._scalars = None if log_dir is None else ScalarLog(log_dir)
        self._history: deque[tuple[Any, ...]] = deque(maxlen=KEPT)
        self._strategy: Any = None
        self._allocator: StepAllocator | None = None
        self._last = 0  # number of the last round seen
        self._failed = False
        self._looked = 0.0  # when, of the monotonic clock
        self._cost = COST
        if strategy is not None:
            self._attach(strategy)

    def _attach(self, strategy: Any) -> None:
        if getattr(strategy, "consistency", None) != "bsp":
            raise ValueError(
                "StepReallocation moves the steps of a synchronous "
                "tf_rdmabatch.ParameterServerStrategy: build and compile the model in its scope, "
                f"or pass the strategy; this one is {type(strategy).__name__}"
            )
        if strategy is self._strategy:
            return
        workers, replicas = len(strategy.allotment), strategy.num_replicas_in_sync
        minimum = self._minimum
        if minimum is None:
            minimum = int(replicas >= workers)
            if not minimum:
                LOGGER.warning(
                    "%d virtual replicas are fewer than the %d workers: some workers have none; "
                    "num_virtual_replicas of twice the workers or more lets work move",
                    replicas,
                    workers,
                )
        self._allocator = StepAllocator(replicas, workers, minimum=minimum, **self._options)  # type: ignore[arg-type]
        self._allocator.adopt(strategy.allotment)
        self._strategy = strategy
        self._silent = np.zeros(workers, np.int64)
        self._history.clear()
        self._last = int(strategy.extended.rounds.number.numpy())
        self._failed = False

    @property
    def decisions(self) -> list[Decision]:
        """All moves, each with the times it saw, what it predicted and what came true."""
        return [] if self._allocator is None else self._allocator.decisions

    @property
    def history(self) -> npt.NDArray[np.void]:
        """What was seen of each round, shape (rounds,), of at most the last 65,536.

        Its fields are ``round``, and of shape (workers,) ``allotment``, ``step_seconds`` (of a
        micro-step), ``communication_seconds`` and ``wait_seconds``; NaN is not known.
        """
        if self._strategy is None:
            return np.zeros(0, [("round", np.int64)])
        workers = len(self._strategy.allotment)
        return np.array(
            list(self._history),
            [
                ("round", np.int64),
                ("allotment", np.int64, (workers,)),
                ("step_seconds", np.float64, (workers,)),
                ("communication_seconds", np.float64, (workers,)),
                ("wait_seconds", np.float64, (workers,)),
            ],
        )

    def update(self) -> list[Decision]:
        """Take the times of the rounds since the last call, and set a new allotment where it pays.

        Returns
        -------
        list of Decision
            The moves: mostly none. Nothing is raised: see the class.

        Raises
        ------
        RuntimeError
            There is no strategy yet.
        """
        if self._strategy is None:
            raise RuntimeError("StepReallocation has no strategy: pass it, as in a custom loop")
        begin = time.monotonic()
        affordable = int((begin - self._looked) * SHARE / self._cost)
        if self._failed or affordable == 0:
            return []
        try:
            return self._update(affordable)
        except Exception:
            self._failed = True
            LOGGER.exception(
                "step reallocation failed, and training goes on with the allotment %s",
                list(self._strategy.allotment),
            )
            return []

    def _update(self, affordable: int) -> list[Decision]:
        allocator, strategy = self._allocator, self._strategy
        assert allocator is not None
        if strategy.allotment != allocator.allotment:
            LOGGER.info(
                "the allotment was set to %s by hand: step reallocation goes on from it",
                list(strategy.allotment),
            )
            allocator.adopt(strategy.allotment)
        known = len(allocator.decisions)
        begin = time.monotonic()
        kept = strategy.round_reports()
        new = min(affordable, int((kept["number"].max(axis=1) > self._last).sum()))
        before = np.concatenate([np.zeros_like(kept[:1]), kept])[-1 - new :]
        for last, reports in zip(before, kept[len(kept) - new :], strict=False):
            self._last = int(reports["number"].max())
            # An evaluation has no micro-step that pushes.
            if reports["micro_steps"].any():
                self._observe(allocator, reports, last)
        decisions = allocator.decisions[known:]
        if allocator.allotment != strategy.allotment:
            strategy.allotment = allocator.allotment
        for decision in decisions:
            LOGGER.info("steps moved after %s", decision)
        self._looked = time.monotonic()
        cost = max(1e-6, (self._looked - begin) / max(1, new))
        # Slowly: the first looks take longer, and any may be interrupted.
        self._cost += 0.2 * (min(cost, 3 * self._cost) - self._cost)
        return decisions

    def _observe(
        self,
        allocator: StepAllocator,
        reports: npt.NDArray[np.void],
        before: npt.NDArray[np.void],
    ) -> None:
        step, communication = step_seconds(reports), communication_seconds(reports)
        wait = wait_seconds(reports, before)
        self._warn_of_silence(np.isfinite(step), allocator.allotment)
        seen = (self._last, reports["micro_steps"], step, communication, wait)
        self._history.append(seen)
        if self._scalars is not None:
            self._scalars.write(
                self._last,
                {"allotment": reports["micro_steps"], "step_seconds": step, "wait_seconds": wait},
            )
        allocator.observe(step, communication, round_seconds(reports, before))

    def _warn_of_silence(self, reported: npt.NDArray[np.bool_], allotment: tuple[int, ...]) -> None:
        silent = ~reported & (np.asarray(allotment) > 0)
        self._silent = np.where(silent, self._silent + 1, 0)
        for worker in np.flatnonzero(self._silent == SILENT):
            LOGGER.warning(
                "worker:%d has reported no times for %d rounds, up to round %d: its steps are "
                "allotted by the last ones that are known",
                worker,
                SILENT,
                self._last,
            )

    def close(self) -> None:
        """Write the picture, if there is to be one, and what TensorBoard has not got yet."""
        if self._scalars is not None:
            self._scalars.flush()
        if self._plot is not None and len(self._history):
            from tf_rdmabatch.strategy.reallocation_plot import draw  # noqa: PLC0415

            draw(self.history, self.decisions, Path(self._plot))

    def set_model(self, model: Any) -> None:
        """Take the model, and its strategy."""
        super().set_model(model)
        if self._strategy is None:
            self._attach(getattr(model, "distribute_strategy", None))

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        """Look at the rounds that were trained."""
        del args, kwargs
        self.update()

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        """Write what is to be written."""
        del args, kwargs
        try:
            self.close()
        except Exception:
            LOGGER.exception("step reallocation could not write its picture or its scalars")
