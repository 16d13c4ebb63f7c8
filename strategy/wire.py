"""What travels: a tensor's dtype on the wire, for dtypes that the engine does not know."""

from __future__ import annotations

import tensorflow as tf

NATIVE = frozenset(
    {tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64},
)
# Each value of the first is a value of the second.
_WIDER = {
    tf.bool: tf.int32,
    tf.int8: tf.int32,
    tf.uint8: tf.int32,
    tf.int16: tf.int32,
    tf.uint16: tf.int32,
    tf.uint32: tf.int64,
}


def wire_dtype(dtype: tf.DType, what: str) -> tf.DType:
    """Return the dtype that stands for `dtype` on the wire.

    Parameters
    ----------
    dtype
        Of a tensor.
    what
        What it is, for the error.

    Raises
    ------
    TypeError
        No dtype of the engine holds it.
    """
    if dtype in NATIVE:
        return dtype
    if dtype in _WIDER:
        return _WIDER[dtype]
    raise TypeError(
        f"{what} has dtype {dtype.name}, which cannot travel between workers and parameter "
        f"servers: cast it to one of {', '.join(sorted(d.name for d in NATIVE | _WIDER.keys()))}"
    )


def encode(value: tf.Tensor, what: str) -> tf.Tensor:
    """Return `value` in the dtype that it travels in."""
    return tf.cast(value, wire_dtype(value.dtype, what))


def decode(value: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Return the tensor of `dtype` that `encode` got."""
    return tf.cast(value, dtype)
