"""Moves large values between the chief and a server: TensorFlow's messages end at 2 GiB."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf

from tf_rdmabatch.strategy import _tensorflow as private

# Bytes of a message.
PART_BYTES = 256 << 20


def to_server(value: Any, device: str) -> Any:
    """Return a value of the chief's on a server, if it is large; else, or if it is there, as it is.

    Parameters
    ----------
    value
        An array or a tensor, or something else.
    device
        Of the server.
    """
    if not isinstance(value, np.ndarray | tf.Tensor) or private.is_graph_tensor(value):
        return value
    if _nbytes(value) <= PART_BYTES or (isinstance(value, tf.Tensor) and _is_at(value, device)):
        return value
    with tf.device("/job:chief/device:CPU:0"):
        flat = tf.reshape(value, [-1])
        parts = [flat[first:end] for first, end in _pieces(flat)]
    with private.no_colocation(), tf.device(device):
        return tf.reshape(tf.concat([tf.identity(part) for part in parts], 0), value.shape)


def to_chief(value: tf.Tensor) -> Any:
    """Return a tensor's value as an array, however large."""
    if _nbytes(value) <= PART_BYTES:
        return value.numpy()
    with tf.device(value.device):
        flat = tf.reshape(value, [-1])
        array = np.empty(flat.shape, value.dtype.as_numpy_dtype)
        for first, end in _pieces(flat):
            array[first:end] = flat[first:end].numpy()
    return array.reshape(value.shape)


def _is_at(value: tf.Tensor, device: str) -> bool:
    here, there = (tf.DeviceSpec.from_string(d) for d in (value.device, device))
    return (here.job, here.task) == (there.job, there.task)


def _nbytes(value: Any) -> int:
    return int(math.prod(value.shape)) * int(tf.as_dtype(value.dtype).size)


def _pieces(flat: tf.Tensor) -> list[tuple[int, int]]:
    count, most = int(flat.shape[0]), PART_BYTES // int(flat.dtype.size)
    return [(first, min(first + most, count)) for first in range(0, count, most)]
