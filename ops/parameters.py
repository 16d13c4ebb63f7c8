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
class Parameter:
    """What a server serves: a tensor, or a pack of tensors; `parameter` and `pack` make it.

    A pack travels as one. Where an op takes or returns a value, that is a tensor, or a list of a
    pack's tensors.
    """

    name: str
    dtype: tf.DType
    shapes: tuple[tf.TensorShape, ...]
    server: str
    priority: int = 0
    is_pack: bool = False

    def handle(self, device: str | None = None) -> ParameterHandle:
        """Return its handle, made on a device (None is the current one).

        One that is made inside a `tf.function` is for this function, on whatever device it is
        called; one that is made outside is for all.
        """
        with tf.device(device):
            resource = library.rdmabatch_parameter(
                parameter=self.name,
                server=self.server,
                dtype=self.dtype,
                shapes=self.shapes,
                priority=self.priority,
            )
        return ParameterHandle(self, resource)


@dataclass(frozen=True)
class ParameterHandle:
    """A parameter on one device; `Parameter.handle` makes it.

    Each op on it runs on that device. Automatic control dependencies keep the order of ops on the
    same handle.
    """

    parameter: Parameter
    resource: tf.Tensor

    @property
    def device(self) -> str:
        """Where its ops run."""
        return self.resource.device  # type: ignore[no-any-return]


def parameter(name: str, dtype: Any, shape: Any, *, server: str, priority: int = 0) -> Parameter:
    """Return a parameter that is one tensor.

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
    priority
        Pushes of lower ones go first when there is a queue: the number of its layer.

    Raises
    ------
    ValueError
        A parameter cannot have this dtype, or the shape is not fully defined.
    """
    return _described(name, dtype, [shape], server, priority, is_pack=False)


def pack(
    name: str, dtype: Any, shapes: Sequence[Any], *, server: str, priority: int = 0
) -> Parameter:
    """Return a parameter that is a pack of one or more tensors of one dtype; see `parameter`."""
    return _described(name, dtype, shapes, server, priority, is_pack=True)


def _described(
    name: str, dtype: Any, shapes: Sequence[Any], server: str, priority: int, *, is_pack: bool
) -> Parameter:
    dtype, known = tf.as_dtype(dtype), tuple(tf.TensorShape(s) for s in shapes)
    if dtype.name not in DTYPES:
        raise ValueError(f"parameter {name!r}: {dtype.name} is not one of {', '.join(DTYPES)}")
    if not known:
        raise ValueError(f"parameter {name!r}: a pack needs a tensor")
    for shape in known:
        if not shape.is_fully_defined():
            raise ValueError(f"parameter {name!r} needs a fully defined shape, not {shape}")
    return Parameter(name, dtype, known, server, priority, is_pack)


def serve(
    parameters: Parameter | Sequence[Parameter],
    contributors: int,
    *,
    versions: int = 1,
    consistency: str = "bsp",
    block_bytes: int = 0,
) -> Any:
    """Serve parameters in the process that this op runs in.

    Parameters
    ----------
    parameters
        One or many.
    contributors
        Pushes that make a step complete.
    versions
        Kept at a time: 1, or 2, so that one can be read while the next is published.
    consistency
        ``"bsp"``: steps; or ``"asp"``: contributions are added as they come.
    block_bytes
        What a parameter is cut into; 0 is as much as a slot holds. -1 is small blocks, of which
        workers send several at a time: as many as they find best (``configure(tune_blocks=True)``).

    Returns
    -------
    tf.Tensor
        Scalar: the number of parameters.

    Raises
    ------
    tf.errors.AlreadyExistsError
        One is served already.
    """
    listed = [parameters] if isinstance(parameters, Parameter) else parameters
    return settled(
        library.rdmabatch_serve(
            names=[p.name for p in listed],
            dtypes=[p.dtype for p in listed],
            shapes=[s for p in listed for s in p.shapes],
            sizes=[len(p.shapes) for p in listed],
            contributors=contributors,
            versions=versions,
            consistency=consistency,
            block_bytes=block_bytes,
        )
    )


def publish(handle: ParameterHandle, value: Any, version: Any) -> Any:
    """Make a value readable under a version, greater than the last."""
    with tf.device(handle.device):
        return library.rdmabatch_publish(
            parameter=handle.resource, values=_tensors(handle, value), version=_int64(version)
        )


def publish_variable(handle: ParameterHandle, variable: Any, version: Any) -> Any:
    """Publish the value of a variable, or of a pack's variables.

    Where one version is kept, and it has 64 KiB or more, the variable moves into the published
    memory: from then on, when it is updated in place, publishing it copies nothing. Its value may
    then only change between `collect` and this op, when no worker reads. Tensors that others keep
    of an earlier value stay what they are.

    Parameters
    ----------
    handle
        Of the server; the variable is on the same device.
    variable
        A `tf.Variable`, or its handle; a list of them for a pack.
    version
        Greater than the last.
    """
    variables = variable if handle.parameter.is_pack else [variable]
    with tf.device(handle.device):
        return library.rdmabatch_publish_variables(
            parameter=handle.resource,
            variables=[getattr(v, "handle", v) for v in variables],
            version=_int64(version),
        )


def collect(handle: ParameterHandle, step: Any, timeout: float = TIMEOUT) -> Any:
    """Wait for all contributions to a step and return their sum.

    Steps are collected in ascending order, from 1. One may be left out: what has come of it, or
    comes later, is dropped.

    Raises
    ------
    tf.errors.UnavailableError
        A contributor was lost; the message names its task.
    tf.errors.FailedPreconditionError
        A later step is awaited.
    """
    with tf.device(handle.device):
        return _value(
            handle,
            library.rdmabatch_collect(
                parameter=handle.resource,
                step=_int64(step),
                dtype=handle.parameter.dtype,
                shapes=handle.parameter.shapes,
                N=len(handle.parameter.shapes),
                timeout=timeout,
            ),
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
        False: return the server's own memory, where it can be reached. Where one version is kept,
        `release` it before the server may publish or update the next one. Where two are, it stays
        as it is until version + 2 is published, and becomes a copy when the next version is pulled
        here while it is still in use: pull every version, and let version + 2 wait for a push from
        here that comes after the pull of version + 1.
    timeout
        Seconds to wait for the version.

    Raises
    ------
    tf.errors.UnavailableError
        The server was lost; the message names its task.
    tf.errors.InvalidArgumentError
        The server serves it with another dtype or shape.
    """
    with tf.device(handle.device):
        return _value(
            handle,
            library.rdmabatch_pull(
                parameter=handle.resource,
                version=_int64(version),
                dtype=handle.parameter.dtype,
                shapes=handle.parameter.shapes,
                N=len(handle.parameter.shapes),
                copy=copy,
                timeout=timeout,
            ),
        )


def release(handles: ParameterHandle | Sequence[ParameterHandle]) -> Any:
    """End the use of the server's memory by what was pulled without a copy.

    Tensors that are still in use become copies. Let it come after the ops that read them, and
    before a push that the server waits for.
    """
    listed = _listed(handles)
    with tf.device(listed[0].device):
        return library.rdmabatch_release(parameters=[h.resource for h in listed])


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

    The process contributes as ``configure(contributor=)`` says.

    Parameters
    ----------
    handle
        Of the worker.
    value
        Of the parameter's dtype and shape.
    step
        From 1, ascending; what was pushed to an earlier step, and is not complete, is given up.
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
    with tf.device(handle.device):
        return library.rdmabatch_push(
            parameter=handle.resource,
            values=_tensors(handle, value),
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
            parameters=[h.resource for h in listed], step=_int64(step), timeout=timeout
        )


def _listed(handles: ParameterHandle | Sequence[ParameterHandle]) -> Sequence[ParameterHandle]:
    return [handles] if isinstance(handles, ParameterHandle) else handles


def _value(handle: ParameterHandle, tensors: Sequence[tf.Tensor]) -> Any:
    return list(tensors) if handle.parameter.is_pack else tensors[0]


def _tensors(handle: ParameterHandle, value: Any) -> list[Any]:
    described = handle.parameter
    values = value if described.is_pack else [value]
    tensors = [tf.convert_to_tensor(v, described.dtype) for v in values]
    if len(tensors) != len(described.shapes):
        raise ValueError(
            f"parameter {described.name!r} has {len(described.shapes)} tensors, not {len(tensors)}"
        )
    for tensor, shape in zip(tensors, described.shapes, strict=True):
        if not tensor.shape.is_compatible_with(shape):
            raise ValueError(
                f"parameter {described.name!r} has shape {shape}, the value {tensor.shape}"
            )
    return tensors


def _int64(value: Any) -> Any:
    return tf.cast(value, tf.int64)
