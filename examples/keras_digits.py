"""Train a small convolutional network on real images of handwritten digits, with Keras `fit`.

    tf-rdmabatch launch --workers 2 --ps 1 examples/keras_digits.py

The images come with scikit-learn; nothing is downloaded. The script knows nothing of roles: it is
what runs on the chief, and the same script trains in one process when the strategy's two lines go.
"""

import argparse

import keras
import numpy as np
from sklearn.datasets import load_digits

import tf_rdmabatch

TEST_IMAGES = 297


def digits() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return (images, labels) to train with and to test with; images have shape (n, 8, 8, 1)."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    images = (data.images[order, ..., None] / 16).astype(np.float32)
    labels = data.target[order]
    return (images[TEST_IMAGES:], labels[TEST_IMAGES:]), (
        images[:TEST_IMAGES],
        labels[:TEST_IMAGES],
    )


def network() -> keras.Model:
    """Return the network, not compiled."""
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


def main() -> None:
    """Train, and print how many of the test images are recognised."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=60)
    options = parser.parse_args()
    keras.utils.set_random_seed(1)
    train, test = digits()

    strategy = tf_rdmabatch.ParameterServerStrategy()
    with strategy.scope():
        model = network()
        model.compile(
            optimizer=keras.optimizers.Adam(2e-3),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    model.fit(*train, batch_size=options.batch_size, epochs=options.epochs, verbose=2)
    _, accuracy = model.evaluate(*test, batch_size=99, verbose=0)
    print(f"test accuracy {accuracy:.1%}")


if __name__ == "__main__":
    main()
