"""Loading the ops: for the right TensorFlow, into a process with one engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tf_rdmabatch.ops
from tf_rdmabatch import _core, ops
from tf_rdmabatch.engine import Engine
from tf_rdmabatch.ops._library import find_library


def test_the_library_of_this_tensorflow_is_found() -> None:
    package = Path(tf_rdmabatch.__file__).parent
    minor = ".".join(tf.__version__.split(".")[:2])
    assert find_library(package, tf.__version__).name == f"_tf_ops-{minor}.so"


def test_another_tensorflow_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "_tf_ops-2.20.so").touch()
    (tmp_path / "_tf_ops-2.21.so").touch()
    with pytest.raises(ImportError, match=r"for TensorFlow 2\.20 and 2\.21, and this is 2\.3"):
        find_library(tmp_path, "2.3.1")
    (tmp_path / "_tf_ops-2.3.so").touch()
    assert find_library(tmp_path, "2.3.1").name == "_tf_ops-2.3.so"


def test_an_installation_without_ops_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match="without its TensorFlow ops"):
        find_library(tmp_path, "2.21.0")


def test_ops_and_python_module_see_one_engine() -> None:
    assert _core.current_task() is None
    with tf.device("/device:CPU:0"):
        address = ops.configure("chief:0", "a token").numpy().decode()
    assert _core.current_task() == ("chief:0", address)
    _core.stop_task()
    with pytest.raises(tf.errors.FailedPreconditionError), tf.device("/device:CPU:0"):
        ops.stats()
    loaded = {
        line.split()[-1]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if line.endswith("librdmabatch.so")
    }
    assert len(loaded) == 1


def test_a_python_engine_serves_the_ops() -> None:
    with Engine(token="a token", name="ps:0") as server, tf.device("/device:CPU:0"):
        served = server.serve("w", np.arange(5, dtype=np.float32))
        ops.configure("worker:0", "a token")
        ops.connect({"ps:0": server.listen()}, timeout=60)
        handle = ops.parameter("w", "float32", [5], server="ps:0").handle()
        value = ops.pull(handle, 1)
        assert value.numpy().tolist() == [0, 1, 2, 3, 4]
        ops.push(handle, value * 2, 1)
        assert served.collect(1).tolist() == [0, 2, 4, 6, 8]
    _core.stop_task()


def test_the_engine_needs_no_tensorflow() -> None:
    script = """
import sys
sys.modules["tensorflow"] = None
import tf_rdmabatch
from tf_rdmabatch.engine import Engine
Engine(token="t").close()
try:
    tf_rdmabatch.ops
except ImportError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert "tensorflow" in done.stdout


# Its threads are running when the interpreter ends.
def test_a_process_may_end_with_its_engine_running() -> None:
    script = """
import tensorflow as tf
from tf_rdmabatch import ops
with tf.device("/device:CPU:0"):
    ops.configure("worker:0", "t")
print("ending")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert done.stdout == "ending\n"
