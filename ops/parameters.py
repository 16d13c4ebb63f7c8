"""Ops on parameters: serve, publish and collect on a server, pull and push on a worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tf_rdmabatch.ops._library import library
from tf_rdmabatch.ops.task import settled

DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64")
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
        Pushes of lower ones go first when there is a queue: the number of its layer.

    Raises
    ------
    ValueError
        A parameter cannot have this dtype, or the shape is not fully defined.
    """
    dtype, shape = tf.as_dtype(dtype), tf.TensorShape(shape)
    if dtype.name not in DTYPES:
        raise ValueError(f"parameter {name!r}: {dtype.name} is not one of {', '.join(DTYPES)}")
    if not shape.is_fully_defined():
        raise ValueError(f"parameter {name!r} needs a fully defined shape, not {shape}")
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
    versions: int = 1,
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
    versions
        Kept at a time: 1, or 2 so that workers on this host can pull without a copy.
    consistency
        ``"bsp"``: steps; or ``"asp"``: contributions are added as they come.
    block_bytes
        What a parameter is cut into; 0 is as much as a slot holds.

    Returns
    -------
    tf.Tensor
        Scalar: the number of parameters.

    Raises
    ------
    tf.errors.AlreadyExistsError
        One is served already.
    """
    listed = _listed(handles)
    with tf.device(listed[0].device):
        return settled(
            library.rdmabatch_serve(
                parameters=_resources(listed),
                contributors=contributors,
                versions=versions,
                consistency=consistency,
                block_bytes=block_bytes,
            )
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


def publish_variable(handle: ParameterHandle, variable: Any, version: Any) -> Any:
    """Publish a variable's value.

    Where one version is kept the variable moves into the published memory: from then on, when it
    is updated in place, publishing it copies nothing. Its value may then only change between
    `collect` and this op, when no worker reads.

    Parameters
    ----------
    handle
        Of the server; the variable is on the same device.
    variable
        A `tf.Variable`, or its handle.
    version
        Greater than the last; the first is 1.
    """
    return publish_variables([handle], [variable], version)


def publish_variables(
    handles: Sequence[ParameterHandle], variables: Sequence[Any], version: Any
) -> Any:
    """Publish several variables of one device in one op; see `publish_variable`."""
    with tf.device(handles[0].device):
        return library.rdmabatch_publish_variable(
            parameters=_resources(handles),
            variables=[getattr(v, "handle", v) for v in variables],
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


def pull(
    handle: ParameterHandle, version: Any, *, copy: bool = True, timeout: float = TIMEOUT
) -> Any:
    """Wait until a version, or a later one, is published and return its value.

    Parameters
    ----------
    handle
        Of the worker.
    version
        The least that will do. Where the server keeps two versions, this one is returned for as
        long as it is there.
    copy
        False: return the server's own memory, where it can be reached and two versions are kept. It
        stays as it is until version + 2 is published, and becomes a copy when the next version is
        pulled here while it is still in use. So pull every version, and let version + 2 wait for a
        push from here that comes after the pull of version + 1.
    timeout
        Seconds to wait for the version.

    Raises
    ------
    tf.errors.UnavailableError
        The server was lost; the message names its task.
    tf.errors.InvalidArgumentError
        The server serves it with another dtype or shape.
    """
    return pull_many([handle], version, copy=copy, timeout=timeout)[0]


def pull_many(
    handles: Sequence[ParameterHandle],
    version: Any,
    *,
    copy: bool = True,
    timeout: float = TIMEOUT,
) -> list[Any]:
    """Pull several parameters to one device in one op; see `pull`."""
    with tf.device(handles[0].device):
        return list(
            library.rdmabatch_pull(
                parameters=_resources(handles),
                version=_int64(version),
                dtypes=[h.dtype for h in handles],
                shapes=[h.shape for h in handles],
                copy=copy,
                timeout=timeout,
            )
        )


def push(
    handle: ParameterHandle,
    value: Any,
    step: Any,
    micro_step: Any = 0,
    micro_steps: Any = 1,
    *,
    reduction: str = "sum",
    first_replica: Any = 0,
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
    reduction
        ``"sum"``, or ``"first"``: only the value of the first micro-step of the worker whose
        `first_replica` is 0 counts, all other workers contribute nothing.
    first_replica
        Number, among all workers' micro-steps, of this worker's first one.
    timeout
        Seconds to wait for room at the server.

    Raises
    ------
    tf.errors.UnavailableError
        The server was lost; the message names its task.
    """
    return push_many(
        [handle],
        [value],
        step,
        micro_step,
        micro_steps,
        reduction=reduction,
        first_replica=first_replica,
        timeout=timeout,
    )


def push_many(
    handles: Sequence[ParameterHandle],
    values: Sequence[Any],
    step: Any,
    micro_step: Any = 0,
    micro_steps: Any = 1,
    *,
    reduction: str = "sum",
    first_replica: Any = 0,
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
            first_replica=_int64(first_replica),
            reduction=reduction,
            timeout=timeout,
        )


def push_nothing(
    handles: ParameterHandle | Sequence[ParameterHandle], step: Any, timeout: float = TIMEOUT
) -> Any:
    """Contribute nothing to a step: for a worker without a micro-step in it.

    Where nobody contributes anything the sum is 0.
    """
    listed = _listed(handles)
    with tf.device(listed[0].device):
        return library.rdmabatch_push_nothing(
            parameters=_resources(listed), step=_int64(step), timeout=timeout
        )


def _listed(handles: ParameterHandle | Sequence[ParameterHandle]) -> Sequence[ParameterHandle]:
    return [handles] if isinstance(handles, ParameterHandle) else handles


def _resources(handles: Sequence[ParameterHandle]) -> list[tf.Tensor]:
    return [h.resource for h in handles]


def _tensors(handles: Sequence[ParameterHandle], values: Sequence[Any]) -> list[Any]:
    tensors = [tf.convert_to_tensor(v, h.dtype) for h, v in zip(handles, values, strict=True)]
    for handle, tensor in zip(handles, tensors, strict=True):
        if not tensor.shape.is_compatible_with(handle.shape):
            raise ValueError(
                f"parameter {handle.name!r} has shape {handle.shape}, the value {tensor.shape}"
            )
    return tensors


def _int64(value: Any) -> Any:
    return tf.cast(value, tf.int64)
