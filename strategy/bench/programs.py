"""The steps that are measured: one replica's function each, the same under both systems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

# What a variable is multiplied with for its gradient: it neither vanishes nor overflows.
RATE = 1e-6
LEARNING_RATE = 1e-3


@dataclass
class Program:
    """A step, and the variables that it reads and writes once.

    Parameters
    ----------
    step
        Called in replica context. It needs no AutoGraph, which takes long for many variables.
    variables
        That are trained.
    """

    step: Callable[[], None]
    variables: Sequence[Any]

    @property
    def shapes(self) -> list[list[int]]:
        """Of the variables."""
        return [v.shape.as_list() for v in self.variables]

    @property
    def nbytes(self) -> int:
        """Bytes that a worker's step pulls and pushes."""
        return 2 * sum(int(v.shape.num_elements()) * int(v.dtype.size) for v in self.variables)


def make_program(strategy: Any, work: dict[str, Any]) -> Program:
    """Create the variables of a work and return its step.

    Parameters
    ----------
    strategy
        In whose scope they are created.
    work
        ``{"shapes": [...]}``: float32 variables of these shapes; or ``{"network": name, "batch":
        images of a replica's step, "image_size": pixels}``.
    """
    if "network" in work:
        return _network(strategy, **work)
    return _plain(strategy, work["shapes"])


def make_variables(strategy: Any, shapes: Sequence[Sequence[int]]) -> list[tf.Variable]:
    """Create float32 variables of these shapes, whose gradients are summed."""
    with strategy.scope():
        return [
            tf.Variable(
                lambda shape=shape: tf.ones(shape),
                aggregation=tf.VariableAggregation.SUM,
                name=f"v{i}",
            )
            for i, shape in enumerate(shapes)
        ]


def _plain(strategy: Any, shapes: Sequence[Sequence[int]]) -> Program:
    variables = make_variables(strategy, shapes)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def step() -> None:
        for variable in variables:
            variable.assign_sub(variable.read_value() * RATE)

    return Program(step, variables)


def _digits() -> keras.Model:
    """Return the network of examples/keras_digits.py."""
    return keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def _resnet50() -> keras.Model:
    return keras.applications.ResNet50(
        weights=None, input_shape=(32, 32, 3), classes=1000, classifier_activation=None
    )


_NETWORKS = {"digits": _digits, "resnet50": _resnet50}


def _network(strategy: Any, network: str, batch: int) -> Program:
    with strategy.scope():
        model = _NETWORKS[network]()
        optimizer = keras.optimizers.SGD(LEARNING_RATE)
        optimizer.build(model.trainable_variables)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def step() -> None:
        optimizer.apply(_gradients(model, batch), model.trainable_variables)

    return Program(step, [v.value for v in model.trainable_variables])


def _gradients(model: keras.Model, batch: int) -> list[tf.Tensor]:
    shape, classes = model.input_shape[1:], model.output_shape[-1]
    # Made on the worker: what comes of an input pipeline is not measured.
    images = tf.random.stateless_uniform([batch, *shape], [1, 2])
    labels = tf.range(batch) % classes
    with tf.GradientTape() as tape:
        logits = model(images, training=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        loss = tf.reduce_mean(losses)
    gradients: list[tf.Tensor] = tape.gradient(loss, model.trainable_variables)
    return gradients


def make_local_rounds(workers: int, network: str, batch: int) -> Callable[[int], None]:
    """Return what trains a network of its own on each worker, without any communication.

    Parameters
    ----------
    workers
        Of the cluster that this process is the chief of.
    network, batch
        As in `make_program`.
    """
    devices = [f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(workers)]
    models = []
    for device in devices:
        with tf.device(device):
            models.append(_NETWORKS[network]())

    @tf.function  # type: ignore[untyped-decorator]
    def rounds(count: tf.Tensor) -> None:
        for device, model in zip(devices, models, strict=True):
            with tf.device(device):
                steps(model)(count)

    def steps(model: keras.Model) -> Any:
        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def step() -> None:
            gradients = _gradients(model, batch)
            for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
                variable.value.assign_sub(LEARNING_RATE * gradient)

        @tf.function  # type: ignore[untyped-decorator]
        def run(count: tf.Tensor) -> None:
            for _ in tf.range(count):
                step()

        return run

    return lambda count: rounds(tf.constant(count))
