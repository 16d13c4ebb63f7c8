"""The steps that are measured: one replica's function each, the same under both systems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

# What a variable is multiplied with for its gradient: it neither vanishes nor overflows.
RATE = 1e-6


@dataclass
class Program:
    """A step, and the variables that it reads and writes once.

    Parameters
    ----------
    step
        Called in replica context.
    variables
        That are trained.
    """

    step: Callable[[], None]
    variables: Sequence[Any]

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


def _plain(strategy: Any, shapes: Sequence[Sequence[int]]) -> Program:
    with strategy.scope():
        variables = [
            tf.Variable(
                lambda shape=shape: tf.ones(shape),
                aggregation=tf.VariableAggregation.SUM,
                name=f"v{i}",
            )
            for i, shape in enumerate(shapes)
        ]

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
        optimizer = keras.optimizers.SGD(1e-3)
        optimizer.build(model.trainable_variables)
    shape, classes = model.input_shape[1:], model.output_shape[-1]

    def step() -> None:
        # Made on the worker: what comes of an input pipeline is not measured.
        images = tf.random.stateless_uniform([batch, *shape], [1, 2])
        labels = tf.range(batch) % classes
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels, model(images, training=True)
            )
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)

    return Program(step, [v.value for v in model.trainable_variables])
