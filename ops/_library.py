"""Loads the library of ops that was built for this TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

PACKAGE = Path(__file__).absolute().parent.parent
PREFIX = "_tf_ops-"


def find_library(package: Path, version: str) -> Path:
    """Return the path of the library of ops for a TensorFlow version.

    Parameters
    ----------
    package
        The folder that holds the libraries, ``_tf_ops-<major>.<minor>.so``.
    version
        Of TensorFlow, such as ``"2.21.0"``.

    Raises
    ------
    ImportError
        There is none for this version: says which there are and what to do.
    """
    minor = ".".join(version.split(".")[:2])
    path = package / f"{PREFIX}{minor}.so"
    if path.is_file():
        return path
    built = sorted(p.stem.removeprefix(PREFIX) for p in package.glob(f"{PREFIX}*.so"))
    if not built:
        raise ImportError(
            "tf_rdmabatch was installed without its TensorFlow ops, since TensorFlow could not be "
            "imported then: pip install --force-reinstall --no-deps --no-build-isolation "
            "tf-rdmabatch"
        )
    raise ImportError(
        f"tf_rdmabatch's ops were built for TensorFlow {' and '.join(built)}, and this is "
        f"{version}: install that TensorFlow, or reinstall tf-rdmabatch with "
        "--no-build-isolation to build them for this one"
    )


library: Any = tf.load_op_library(str(find_library(PACKAGE, tf.__version__)))
