"""Ops on parameters: serve, publish and collect on a server, pull and push on a worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tf_rdmabatch.ops._library import library

# Seconds that an op waits for a peer that is alive and does nothing.
TIMEOUT = 3600.0


@dataclass(frozen=True)
class ParameterHandle:
    """A parameter on one device; `parameter_handle` makes it.

    Each op on it runs on that device. Automatic control dependencies keep the order of ops on the
    same handle.
    """

    name: str
    dtype: tf.DType
    shape: tf.TensorShape
    server: str
    device: str
    resource: tf.Tensor


def parameter_handle(
    name: str,
    dtype: Any,
    shape: Any,
    *,
    server: str,
    device: str | None = None,
    contributor: int = 0,
    priority: int = 0,
) -> ParameterHandle:
    """Return the handle of a parameter on a device. Also inside a `tf.function` it is made eagerly.

    Parameters
    ----------
    name
        1 to 256 bytes, unique on its server.
    dtype
        float32, float64, float16, bfloat16, int32 or int64.
    shape
        Fully defined.
    server
        Name of the task that serves it.
    device
        Where its ops run; None is the current device.
    contributor
        As which this device pushes: from 0 to the parameter's contributors - 1.
    priority
        Pushes of lower ones go first when there is a queue: the number of its layer, from the first.
    """
    dtype, shape = tf.as_dtype(dtype), tf.TensorShape(shape)
    with tf.init_scope(), tf.device(device):
        resource = library.rdmabatch_parameter(
            parameter=name,
            server=server,
            dtype=dtype,
            shape=shape,
            contributor=contributor,
            priority=priority,
        )
    return ParameterHandle(name, dtype, shape, server, resource.device, resource)


def serve(
    handles: ParameterHandle | Sequence[ParameterHandle],
    contributors: int,
    *,
    consistency: str = "bsp",
    block_bytes: int = 0,
) -> Any:
    """Serve parameters on their servers' device; all handles are of one device.

    Parameters
    ----------
    handles
        One or many.
    contributors
        Pushes that make a step complete.
    consistency
        ``"bsp"``: steps; or ``"asp"``: contributions are added as they come.
    block_bytes
        What a parameter is cut into; 0 is as much as a slot holds.

    Raises
    ------
    tf.errors.AlreadyExistsError
        One is served already.
    """
    listed = _listed(handles)
    with tf.device(listed[0].device):
        return library.rdmabatch_serve(
            parameters=_resources(listed),
            contributors=contributors,
            consistency=consistency,
            block_bytes=block_bytes,
        )


def publish(handle: ParameterHandle, value: Any, version: Any) -> Any:
    """Make a value readable under a version, greater than the last; the first is 1."""
    return publish_many([handle], [value], version)


def publish_many(handles: Sequence[ParameterHandle], values: Sequence[Any], version: Any) -> Any:
    """Publish several parameters of one device in one op; see `publish`."""
    with tf.device(handles[0].device):
        return library.rdmabatch_publish(
            parameters=_resources(handles),
            values=_tensors(handles, values),
            version=_int64(version),
        )


def collect(handle: ParameterHandle, step: Any, timeout: float = TIMEOUT) -> Any:
    """Wait for all contributions to a step and return their sum.

    Steps are collected in turn, from 1.

    Raises
    ------
    tf.errors.UnavailableError
        A contributor was lost; the message names its task.
    tf.errors.FailedPreconditionError
        Another step is awaited.
    """
    return collect_many([handle], step, timeout)[0]


def collect_many(
    handles: Sequence[ParameterHandle], step: Any, timeout: float = TIMEOUT
) -> list[Any]:
    """Collect several parameters of one device in one op; see `collect`."""
    with tf.device(handles[0].device):
        return list(
            library.rdmabatch_collect(
                parameters=_resources(handles),
                step=_int64(step),
                dtypes=[h.dtype for h in handles],
                shapes=[h.shape for h in handles],
                timeout=timeout,
            )
        )


def pull(handle: ParameterHandle, version: Any, timeout: float = TIMEOUT) -> Any:
    """Wait until a version, or a later one, is published and return its value.

    Raises
    ------
    tf.errors.UnavailableError
        The server was lost; the message names its task.
    tf.errors.InvalidArgumentError
        The server serves it with another dtype or shape.
    """
    return pull_many([handle], version, timeout)[0]


def pull_many(
    handles: Sequence[ParameterHandle], version: Any, timeout: float = TIMEOUT
) -> list[Any]:
    """Pull several parameters to one device in one op; see `pull`."""
    with tf.device(handles[0].device):
        return list(
            library.rdmabatch_pull(
                parameters=_resources(handles),
                version=_int64(version),
                dtypes=[h.dtype for h in handles],
                shapes=[h.shape for h in handles],
                timeout=timeout,
            )
        )


def push(
    handle: ParameterHandle,
    value: Any,
    step: Any,
    micro_step: Any = 0,
    micro_steps: Any = 1,
    timeout: float = TIMEOUT,
) -> Any:
    """Contribute a value to a step: the sum over the micro-steps is sent with the last of them.

    Parameters
    ----------
    handle
        Says as which contributor.
    value
        Of the parameter's dtype and shape.
    step
        From 1; each contributor once.
    micro_step, micro_steps
        Which of how many, from 0, in order.
    timeout
        Seconds to wait for room at the server.

    Raises
    ------
    tf.errors.UnavailableError
        The server was lost; the message names its task.
    """
    return push_many([handle], [value], step, micro_step, micro_steps, timeout)


def push_many(
    handles: Sequence[ParameterHandle],
    values: Sequence[Any],
    step: Any,
    micro_step: Any = 0,
    micro_steps: Any = 1,
    timeout: float = TIMEOUT,
) -> Any:
    """Push several parameters from one device in one op; see `push`."""
    with tf.device(handles[0].device):
        return library.rdmabatch_push(
            parameters=_resources(handles),
            values=_tensors(handles, values),
            step=_int64(step),
            micro_step=_int64(micro_step),
            micro_steps=_int64(micro_steps),
            timeout=timeout,
        )


def _listed(handles: ParameterHandle | Sequence[ParameterHandle]) -> Sequence[ParameterHandle]:
    return [handles] if isinstance(handles, ParameterHandle) else handles


def _resources(handles: Sequence[ParameterHandle]) -> list[tf.Tensor]:
    return [h.resource for h in handles]


def _tensors(handles: Sequence[ParameterHandle], values: Sequence[Any]) -> list[Any]:
    return [tf.convert_to_tensor(v, h.dtype) for h, v in zip(handles, values, strict=True)]


def _int64(value: Any) -> Any:
    return tf.cast(value, tf.int64)
