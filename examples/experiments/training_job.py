"""The chief of the training experiment: ``training_job.py JSON``, started by `training`.

The argument says what is trained how. The first answer is what a micro-step takes; then each line
of the input, ``{"scenario": ..., "rounds": ...}``, has it trained from the start, and is answered
with a row.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_rdmabatch
from examples.experiments.training import NONE
from examples.keras_digits import digits, network
from tf_rdmabatch.bench.cpu_time import descendants, processes_seconds
from tf_rdmabatch.bench.slowdown import Lasting, SlowDown, ideal_seconds, make_scenario
from tf_rdmabatch.bench.strategy_job import MARK
from tf_rdmabatch.strategy.stats import communication_seconds, step_seconds

LEARNING_RATE = 1e-3
CLASSES = 10
# Rounds between two looks at the accuracy; as many calibrate the delays.
EPOCH = 10
ACCURACY = 0.9
# Parameters travel whole.
WHOLE = 512 << 20
MODES: dict[str, dict[str, Any]] = {
    "baseline": {"confirm": "each", "block_size": WHOLE},
    "batched": {"confirm": "batch", "block_size": WHOLE},
    "scheduling": {"confirm": "each", "block_size": WHOLE},
    "network": {},
    "dsana": {},
}
SCHEDULED = ("scheduling", "dsana")
Images = tuple[np.ndarray, np.ndarray]


def synthetic() -> tuple[Images, Images]:
    """Return images of 16 by 16 to train and to test with: a pattern for each class, and noise."""
    random = np.random.default_rng(0)
    patterns = random.normal(size=(CLASSES, 16, 16, 1))
    labels = random.integers(0, CLASSES, 2300)
    images = patterns[labels] + random.normal(0, 6, (len(labels), 16, 16, 1))
    images = images.astype(np.float32)
    return (images[300:], labels[300:]), (images[:300], labels[:300])


def wide() -> keras.Model:
    """Return a network of 1.3 million parameters, not compiled."""
    return keras.Sequential(
        [
            keras.layers.Input((16, 16, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(1024, activation="relu"),
            keras.layers.Dense(1024, activation="relu"),
            keras.layers.Dense(CLASSES),
        ]
    )


NETWORKS: dict[str, tuple[Callable[[], keras.Model], Callable[[], tuple[Images, Images]]]] = {
    "digits": (network, digits),
    "wide": (wide, synthetic),
}


def answer(values: dict[str, Any]) -> None:
    """Tell training.py something."""
    print(MARK.decode() + json.dumps(values), flush=True)


def compiled(make: Callable[[], keras.Model]) -> keras.Model:
    """Return a network that is ready for training, its initial weights always the same."""
    keras.utils.set_random_seed(1)
    model = make()
    model.compile(
        optimizer=keras.optimizers.Adam(LEARNING_RATE),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.optimizer.build(model.trainable_variables)
    return model


class Clock(keras.callbacks.Callback):
    """When rounds begin and end; the last of the callbacks, so that the others' time counts."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self._last = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Leave out what is between epochs."""
        del epoch, logs
        self._last = 0.0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begin an epoch."""
        del batch, logs
        self._last = self._last or time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """End a round."""
        del batch, logs
        now = time.perf_counter()
        self.seconds.append(now - self._last)
        self._last = now


class Slowness(keras.callbacks.Callback):
    """Makes the workers as slow as a scenario says, from round to round."""

    def __init__(self, slow_down: SlowDown, delays: Callable[[int], list[float]]) -> None:
        super().__init__()
        self._slow_down, self._delays = slow_down, delays
        self._number = 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Set the delays of a round."""
        del batch, logs
        self._slow_down.set(dict(enumerate(self._delays(self._number))))
        self._number += 1


class Training:
    """A network under a strategy, which can be trained again from the start.

    Parameters
    ----------
    request
        What training.py asks for.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        make, data = NETWORKS[request["network"]]
        self._train, self._test = data()
        self.strategy = tf_rdmabatch.ParameterServerStrategy(
            num_virtual_replicas=request["num_steps"], **MODES[request["mode"]]
        )
        with self.strategy.scope():
            self._model = compiled(make)
        self._start = self._values()
        # Trained in this process, it is what the result has to be, and evaluates it.
        self._local = compiled(make)
        self._even = self.strategy.allotment
        self._slow_down = SlowDown(self.strategy)
        self.step = self._calibrate()  # seconds of a micro-step that nothing but the delay slows

    def _values(self) -> list[np.ndarray]:
        variables = [*self._model.variables, *self._model.optimizer.variables]
        return [v.numpy() for v in variables]

    def _restart(self) -> None:
        variables = [*self._model.variables, *self._model.optimizer.variables]
        for variable, value in zip(variables, self._start, strict=True):
            variable.assign(value)
        self.strategy.allotment = self._even

    def _batches(self) -> Any:
        """Return batches without an end, in the same order each time."""
        images, labels = self._train
        random = np.random.default_rng(0)
        order = np.concatenate([random.permutation(len(labels)) for _ in range(8)])
        examples = tf.data.Dataset.from_tensor_slices((images[order], labels[order]))
        # Without an end, there is no batch that is smaller than the others.
        return examples.repeat().batch(self.request["batch"]).prefetch(2)

    def run(
        self, rounds: int, delays: Callable[[int], list[float]], scheduled: bool
    ) -> tuple[Clock, list[tuple[float, float]]]:
        """Train from the start; return the rounds' times, and the accuracy after some seconds."""
        self._restart()
        clock, accuracies = Clock(), [(0.0, self._accuracy())]
        callbacks: list[Any] = [Slowness(self._slow_down, delays)]
        if scheduled:
            callbacks.append(tf_rdmabatch.StepReallocation(self.strategy))

        def look(epoch: int, logs: Any) -> None:
            del epoch, logs
            accuracies.append((sum(clock.seconds), self._accuracy()))

        callbacks += [clock, keras.callbacks.LambdaCallback(on_epoch_end=look)]
        self._model.fit(
            self._batches(),
            steps_per_epoch=EPOCH,
            epochs=rounds // EPOCH,
            callbacks=callbacks,
            verbose=0,
            shuffle=False,
        )
        return clock, accuracies

    def _accuracy(self) -> float:
        self._local.set_weights(self._model.get_weights())
        found = np.argmax(self._local.predict(self._test[0], batch_size=300, verbose=0), axis=-1)
        return float(np.mean(found == self._test[1]))

    def _calibrate(self) -> float:
        """Return how long a micro-step takes with the least delay."""
        step = self.request["step_delay_s"]
        self.run(2 * EPOCH, lambda _: [step] * len(self._even), scheduled=False)
        times = np.concatenate([step_seconds(t) for t in self._times(EPOCH)])
        return float(np.nanmedian(times))

    def _times(self, rounds: int) -> list[Any]:
        all_times = self.strategy.round_times(rounds)
        return [all_times[f"worker:{w}"] for w in range(len(self._even))]

    def row(self, scenario_name: str, rounds: int) -> dict[str, Any]:
        """Train in a scenario, and return what is to be told of it."""
        request, workers, step = self.request, len(self._even), self.step
        none = scenario_name == NONE
        equal = Lasting(workers, slow=())
        scenario = equal if none else make_scenario(scenario_name, workers, request["seed"])

        def delays(number: int) -> list[float]:
            slower = scenario.factors(number) - 1
            return [request["step_delay_s"] + float(s) * step for s in slower]

        tasks = descendants(os.getppid())
        cpu = processes_seconds(tasks)
        clock, accuracies = self.run(rounds, delays, request["mode"] in SCHEDULED)
        cpu = processes_seconds(tasks) - cpu
        # `fit` begins in the first rounds, and in scenario A the scheduler reacts.
        counted = range(EPOCH, rounds)
        ideal = [ideal_seconds(scenario.factors(r), request["num_steps"], step) for r in counted]
        reached = [seconds for seconds, accuracy in accuracies if accuracy >= ACCURACY]
        return {
            "scenario": scenario_name,
            "s_per_iteration": float(np.mean([clock.seconds[r] for r in counted])),
            "ideal_s_per_iteration": float(np.mean(ideal)),
            "s_to_accuracy": reached[0] if reached else None,
            "cpu_s": cpu,
            "accuracy": accuracies,
            "largest_difference": self._difference(rounds),
            "rounds": rounds,
            "counted_from": EPOCH,
            "round_s": [round(s, 5) for s in clock.seconds],
            **self._parts(clock, step),
        }

    def _parts(self, clock: Clock, step: float) -> dict[str, Any]:
        """Return what the model of scale.py wants to know, and how many micro-steps workers ran."""
        count = min(2 * EPOCH, len(clock.seconds))
        times = self._times(count)
        communication = np.array([communication_seconds(t) for t in times])
        steps = np.array([step_seconds(t) for t in times])
        ran = np.array([t["micro_steps"] for t in times])
        slowest = (communication + steps * ran).max(axis=0)
        overhead = np.array(clock.seconds[-count:]) - slowest
        jitter = np.nanstd(np.diff(np.log(steps), axis=1), axis=1) / np.sqrt(2)
        return {
            "step_s": step,
            "communication_s": float(np.nanmedian(communication)),
            "overhead_s": float(np.nanmedian(overhead)),
            "jitter": float(np.nanmedian(jitter)),
            "micro_steps": ran.sum(axis=1).tolist(),
        }

    def _difference(self, rounds: int) -> float:
        """Return the largest difference of a weight to training in this process alone."""
        make, _ = NETWORKS[self.request["network"]]
        alone = compiled(make)
        alone.fit(
            self._batches(),
            steps_per_epoch=EPOCH,
            epochs=rounds // EPOCH,
            verbose=0,
            shuffle=False,
        )
        pairs = zip(alone.get_weights(), self._model.get_weights(), strict=True)
        return max(float(np.abs(a - b).max()) for a, b in pairs)


def main() -> None:
    """Answer requests until there are no more."""
    training = Training(json.loads(sys.argv[1]))
    answer({"step_s": training.step})
    for line in sys.stdin:
        wanted = json.loads(line)
        answer(training.row(wanted["scenario"], wanted["rounds"]))


if __name__ == "__main__":
    main()
