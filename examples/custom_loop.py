"""Train the network of keras_digits.py with a loop of one's own instead of Keras `fit`.

    tf-rdmabatch launch --workers 2 --ps 1 examples/custom_loop.py

The script is what runs on the chief. It is the loop that runs under any synchronous strategy of
tf.distribute: with tf.distribute.MirroredStrategy() in place of the strategy the results are equal.
"""

import argparse

import keras
import numpy as np
import tensorflow as tf
from keras_digits import digits, network

import tf_rdmabatch


def main() -> None:
    """Train, and print how many of the test images are recognised."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=60)
    options = parser.parse_args()
    keras.utils.set_random_seed(1)
    train, test = digits()

    strategy = tf_rdmabatch.ParameterServerStrategy()
    examples = tf.data.Dataset.from_tensor_slices(train).shuffle(len(train[1]), seed=1)
    dataset = strategy.experimental_distribute_dataset(examples.batch(options.batch_size))
    with strategy.scope():
        model = network()
        optimizer = keras.optimizers.Adam(2e-3)
        optimizer.build(model.trainable_variables)

    def replica_step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Train with a replica's part of a batch; return the sum of its losses."""
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            # Gradients are summed over the replicas: so each counts by its share of the batch.
            loss = tf.reduce_sum(losses) / options.batch_size
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return tf.reduce_sum(losses)

    @tf.function
    def train_step(batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        losses = strategy.run(replica_step, args=batch)
        return strategy.reduce("SUM", losses, axis=None)

    for epoch in range(1, options.epochs + 1):
        total = 0.0
        for batch in dataset:
            total += float(train_step(batch))
        print(f"epoch {epoch}: loss {total / len(train[1]):.4f}")

    logits = model(test[0], training=False)
    accuracy = np.mean(np.argmax(logits, axis=-1) == test[1])
    print(f"test accuracy {accuracy:.1%}")


if __name__ == "__main__":
    main()
