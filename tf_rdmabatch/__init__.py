"""tf_rdmabatch: parameter traffic over a batched RDMA engine.

Importing the package is cheap: a submodule, such as ``tf_rdmabatch.engine``, is loaded when it is
first named.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"
__all__ = [
    "ParameterServerStrategy",
    "StepReallocation",
    "__version__",
    "engine",
    "ops",
    "serve",
]

_LAZY_MODULES = frozenset({"engine", "ops"})
# These import TensorFlow.
_LAZY_ATTRIBUTES = {
    "ParameterServerStrategy": "strategy",
    "StepReallocation": "strategy",
    "serve": "strategy",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY_MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _LAZY_ATTRIBUTES:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY_ATTRIBUTES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY_MODULES, *_LAZY_ATTRIBUTES})
