"""Parameters: served by one engine, pushed to and pulled from by its peers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tf_rdmabatch import _core
from tf_rdmabatch.errors import InvalidArgument
from tf_rdmabatch.memory import (
    DTYPES,
    Array,
    RegisteredArray,
    as_dtype,
    as_seconds,
    check_like,
    flat_bytes,
    writable_bytes,
)

_CONSISTENCY = {"bsp": _core.Consistency.BSP, "asp": _core.Consistency.ASP}


class ServedParameter:
    """A parameter that this engine serves; `Engine.serve` returns it.

    A round under ``consistency="bsp"``: each contributor pushes its blocks of a step, `collect`
    waits for the last of them and takes the sum, `publish` makes the next version readable.
    """

    def __init__(self, native: _core.Served) -> None:
        self._native = native
        self.name = native.name
        self.dtype = as_dtype(native.dtype)
        self.shape = tuple(native.shape)
        self.nbytes = native.nbytes
        self.contributors = native.contributors
        self.block_bytes = native.block_bytes
        flat = np.frombuffer(memoryview(native), np.uint8, count=self.nbytes)
        self._array: Array = flat.view(self.dtype).reshape(self.shape)

    def __repr__(self) -> str:
        return f"<ServedParameter {self.name!r}, {self.dtype} {self.shape}, version {self.version}>"

    @property
    def array(self) -> Array:
        """The published memory itself: update it in place, then call ``publish()``.

        Under "bsp" that is safe between `collect` and `publish`, when no worker reads.
        """
        return self._array

    @property
    def version(self) -> int:
        """The version published last; 0 before the first."""
        return self._native.version

    @property
    def step(self) -> int:
        """The step whose contributions are awaited next."""
        return self._native.step

    def collect(
        self, step: int | None = None, out: Array | None = None, timeout: float | None = 30.0
    ) -> Array:
        """Wait for all contributions of a step and return their sum.

        Parameters
        ----------
        step
            Which; None is the one that is awaited. Ignored under "asp", where the sum is of
            whatever has come since the last call.
        out
            Where to put the sum: an array of the parameter's shape and dtype. None: a new one.
        timeout
            Seconds. After `DeadlineExceeded` the call may be repeated, nothing is lost.

        Returns
        -------
        ndarray
            `out`, or a new array of the parameter's shape and dtype.

        Raises
        ------
        PeerLost
            A contributor's connection ended before its contribution was complete. Another may push
            in its place, and the call be repeated.
        """
        if out is None:
            out = np.empty(self.shape, self.dtype)
        check_like(out, self.shape, self.dtype, f"parameter {self.name!r}")
        self._native.collect(
            self.step if step is None else step, writable_bytes(out), as_seconds(timeout)
        )
        return out

    def publish(self, value: Array | None = None, version: int | None = None) -> int:
        """Make a value readable as the next version, and return its number.

        Parameters
        ----------
        value
            Of the parameter's shape and dtype. None: `array` holds it already.
        version
            Its number, greater than the last; None is the last plus 1.
        """
        if version is None:
            version = self.version + 1
        if value is None:
            self._native.publish(version, None)
        else:
            check_like(value, self.shape, self.dtype, f"parameter {self.name!r}")
            self._native.publish(version, flat_bytes(value))
        return version


class Parameter:
    """A parameter of a peer; `Connection.parameter` returns it."""

    def __init__(self, native: _core.Parameter, name: str) -> None:
        self._native = native
        self._version = 0
        self.name = name
        self.dtype = as_dtype(native.dtype)
        self.shape = tuple(native.shape)
        self.nbytes = native.nbytes
        self.contributors = native.contributors
        self.block_bytes = native.block_bytes

    def __repr__(self) -> str:
        return f"<Parameter {self.name!r}, {self.dtype} {self.shape}, version {self.version}>"

    @property
    def version(self) -> int:
        """The version that was pulled last; 0 before the first."""
        return self._version

    def push(
        self, value: Array, step: int, contributor: int = 0, timeout: float | None = 30.0
    ) -> None:
        """Add a contribution to a step; returns when `value` may be used again.

        Parameters
        ----------
        value
            Of the parameter's shape and dtype.
        step
            Of the round; the first is 1. What comes late, to a step of the past, is dropped.
        contributor
            Who pushes, from 0 to ``contributors - 1``; each once a step.
        timeout
            Seconds to wait for free slots. After `DeadlineExceeded`, or Ctrl-C, the same call goes
            on where it stopped.

        Raises
        ------
        InvalidArgument
            Another shape or dtype than the parameter's.
        """
        check_like(value, self.shape, self.dtype, f"parameter {self.name!r}")
        self._native.push(step, contributor, flat_bytes(value), as_seconds(timeout))

    def pull(
        self, version: int = 1, out: Array | None = None, timeout: float | None = 30.0
    ) -> Array:
        """Wait until a version is published and read it, or a later one.

        Parameters
        ----------
        version
            The least that will do; the first that is published is 1.
        out
            Where to read it to: of the parameter's shape and dtype. None: a new array. On
            transports that need registered memory a `RegisteredArray` saves a copy.
        timeout
            Seconds.

        Returns
        -------
        ndarray
            `out`, or a new array of the parameter's shape and dtype. `version` says which it is.
        """
        if out is None:
            out = np.empty(self.shape, self.dtype)
        check_like(out, self.shape, self.dtype, f"parameter {self.name!r}")
        region = out.region if isinstance(out, RegisteredArray) else None
        self._version = self._native.pull(version, writable_bytes(out), as_seconds(timeout), region)
        return out

    def wait_version(self, version: int, timeout: float | None = 30.0) -> None:
        """Wait until a version, or a later one, is published."""
        self._native.wait_version(version, as_seconds(timeout))


def serve(
    native: _core.Engine,
    name: str,
    initial: Array | None,
    shape: int | Sequence[int] | None,
    dtype: npt.DTypeLike | None,
    contributors: int,
    block_bytes: int,
    consistency: str,
) -> ServedParameter:
    """Serve a parameter; see `Engine.serve`."""
    if (initial is None) == (shape is None):
        raise InvalidArgument("serve takes an initial array, or a shape and a dtype")
    if initial is not None:
        shape, dtype = initial.shape, initial.dtype
    if consistency not in _CONSISTENCY:
        raise InvalidArgument(f"consistency must be 'bsp' or 'asp', not {consistency!r}")
    element: np.dtype[Any] = as_dtype(np.float32 if dtype is None else dtype)
    if element.name not in DTYPES:
        raise InvalidArgument(f"a parameter is one of {', '.join(DTYPES)}, not {element.name}")
    extents = [shape] if isinstance(shape, int) else list(shape or ())
    served = ServedParameter(
        _core.serve(
            native,
            name,
            element.name,
            extents,
            contributors,
            block_bytes,
            _CONSISTENCY[consistency],
        )
    )
    if initial is not None:
        served.publish(initial)
    return served
