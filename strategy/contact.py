"""The first tensors that tasks fetch from the chief."""

from __future__ import annotations

import time
from collections.abc import Sequence

import tensorflow as tf

_ATTEMPTS = 5
_PAUSE = 0.5


def fetch_from_chief(devices: Sequence[str]) -> None:
    """Have each device fetch a tensor from the chief, which no harm comes of where it fails.

    A task may have TensorFlow's connections with an earlier chief, or with this one from before
    the network was cut: it learns that they have ended when it uses them. The first round must
    not be what finds out.

    Parameters
    ----------
    devices
        One of each task.

    Raises
    ------
    tf.errors.UnavailableError
        A task cannot reach the chief.
    """

    def fetch(value: tf.Tensor) -> list[tf.Tensor]:
        fetched = []
        for device in devices:
            with tf.device(device):
                fetched.append(tf.identity(value))
        return fetched

    function = tf.function(fetch, autograph=False)
    for attempt in range(_ATTEMPTS):
        try:
            function(tf.zeros([]))
        except tf.errors.UnavailableError:
            if attempt == _ATTEMPTS - 1:
                raise
            time.sleep(_PAUSE)
        else:
            return
