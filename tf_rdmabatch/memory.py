"""Arrays in registered memory, and regions of peers."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tf_rdmabatch import _core
from tf_rdmabatch.errors import InvalidArgument

Array: TypeAlias = npt.NDArray[Any]
BytesLike: TypeAlias = "bytes | bytearray | memoryview | Array"

DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64")

_ACCESS = {
    "local": _core.Access.LOCAL,
    "read": _core.Access.READ,
    "write": _core.Access.WRITE,
}


class RegisteredArray(np.ndarray[Any, np.dtype[Any]]):
    """A NumPy array in memory that is registered with the engine's transports.

    Made by `Engine.allocate`. Views of it are registered as well, and keep the memory alive;
    copies and results of arithmetic are plain memory: ``array.region`` is None there.
    """

    region: _core.Region | None

    def __array_finalize__(self, source: Array | None) -> None:
        region = getattr(source, "region", None)
        self.region = region if region is not None and _lies_in(self, region) else None

    def __array_wrap__(self, array: Array, context: Any = None, return_scalar: bool = False) -> Any:
        """Make results of arithmetic plain arrays, unless they were put into this one."""
        if array is self:
            return array
        return array[()] if return_scalar or array.ndim == 0 else array.view(np.ndarray)

    @property
    def region_offset(self) -> int:
        """Bytes between the beginning of the region and this array."""
        return self.ctypes.data - owned_region(self).address


class RemoteRegion:
    """A peer's region, as `Connection.import_region` returns it. Usable over that connection.

    Attributes
    ----------
    nbytes : int
        Its size in bytes: that of the exported array, rounded up to whole pages.
    writable : bool
        Whether it may be written; it may always be read.
    """

    def __init__(self, native: _core.RemoteRegion) -> None:
        self._native = native
        self.nbytes = native.nbytes
        self.writable = native.writable

    def __repr__(self) -> str:
        return f"RemoteRegion(nbytes={self.nbytes}, writable={self.writable})"


def allocate(
    native: _core.Engine, shape: int | Sequence[int], dtype: npt.DTypeLike, access: str
) -> RegisteredArray:
    """Return a registered array of zeros; see `Engine.allocate`."""
    if access not in _ACCESS:
        raise InvalidArgument(f"access must be one of {', '.join(_ACCESS)}, not {access!r}")
    element = as_dtype(dtype)
    if element.hasobject:
        raise InvalidArgument("registered memory cannot hold Python objects")
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    nbytes = math.prod(extents) * element.itemsize
    region = native.allocate(nbytes, _ACCESS[access])
    flat = np.frombuffer(memoryview(region), np.uint8, count=nbytes)
    array: RegisteredArray = flat.view(element).reshape(extents).view(RegisteredArray)
    array.region = region
    return array


def owned_region(array: Array) -> _core.Region:
    """Return the region of a registered array; InvalidArgument for any other."""
    region = getattr(array, "region", None)
    if not isinstance(region, _core.Region):
        raise InvalidArgument("the array is not in registered memory: make it with Engine.allocate")
    return region


def flat_bytes(data: BytesLike) -> BytesLike:
    """Return the bytes of `data`, in C order; a copy where an array is not contiguous."""
    if isinstance(data, np.ndarray):
        if data.dtype.hasobject:
            raise InvalidArgument("an array of Python objects cannot be sent")
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return data


def writable_bytes(array: Array) -> Array:
    """Return the bytes of a contiguous, writable array, as a view."""
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise InvalidArgument("the destination must be a writable array in C order")
    flat: Array = array.reshape(-1).view(np.uint8)
    return flat


def as_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return a NumPy dtype; "bfloat16" needs the package ml_dtypes."""
    if dtype == "bfloat16":
        try:
            module = importlib.import_module("ml_dtypes")
        except ImportError:
            raise InvalidArgument(
                "NumPy has no bfloat16 of its own: pip install ml_dtypes"
            ) from None
        bfloat16: np.dtype[Any] = np.dtype(module.bfloat16)
        return bfloat16
    return np.dtype(dtype)


def as_seconds(timeout: float | None) -> float:
    """Return a timeout for the engine: None is none."""
    return math.inf if timeout is None else timeout


def check_like(array: Array, shape: tuple[int, ...], dtype: np.dtype[Any], what: str) -> None:
    """Raise InvalidArgument unless `array` has this shape and dtype."""
    if array.shape != shape or array.dtype != dtype:
        raise InvalidArgument(
            f"{what} is {dtype} of shape {shape}, the array {array.dtype} of shape {array.shape}"
        )


def _lies_in(array: Array, region: _core.Region) -> bool:
    return region.address <= array.ctypes.data < region.address + region.nbytes
