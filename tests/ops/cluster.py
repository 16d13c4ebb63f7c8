"""Two workers and a server in processes of their own, driven from the process that starts them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tf_rdmabatch import ops

TOKEN = "the token of these tests"
WORKERS = 2


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def run(step: Callable[[], Any]) -> None:
    """Run a function, whose errors are raised at once: those of eager ops elsewhere come later."""

    @tf.function
    def function() -> None:
        step()

    function()


def fails(error: type[Exception], message: str, step: Callable[[], Any]) -> None:
    with pytest.raises(error, match=message):
        run(step)


class Job:
    """The tasks' processes and devices; `start` gives them engines."""

    def __init__(self) -> None:
        self.names = [f"worker:{i}" for i in range(WORKERS)] + ["ps:0"]
        self.devices = {
            name: "/job:{}/replica:0/task:{}/device:CPU:0".format(*name.split(":"))
            for name in self.names
        }
        self.server = self.devices["ps:0"]
        self.workers = [self.devices[f"worker:{i}"] for i in range(WORKERS)]
        ports = free_ports(len(self.names) + 1)
        cluster: dict[str, list[str]] = {"chief": [f"127.0.0.1:{ports.pop()}"]}
        for name, port in zip(self.names, ports, strict=True):
            cluster.setdefault(name.split(":")[0], []).append(f"127.0.0.1:{port}")
        self.processes = {name: self._start_process(name, cluster) for name in self.names}
        for name, process in self.processes.items():
            assert process.stdout is not None
            assert process.stdout.readline() == "serving\n", f"{name} did not start"
        tf.config.experimental_connect_to_cluster(
            tf.train.ClusterSpec(cluster), job_name="chief", task_index=0, protocol="grpc"
        )

    @staticmethod
    def _start_process(name: str, cluster: dict[str, list[str]]) -> subprocess.Popen[str]:
        script = Path(__file__).parent / "tf_server.py"
        return subprocess.Popen(
            [sys.executable, script, *name.split(":"), json.dumps(cluster)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.communicate()

    def start(self, **options: Any) -> None:
        with tf.device(self.server):
            address = ops.configure("ps:0", TOKEN, **options)
        for index, device in enumerate(self.workers):
            with tf.device(device):
                ops.configure(f"worker:{index}", TOKEN, contributor=index, **options)
                ops.connect({"ps:0": address}, timeout=60)

    def handles(
        self, name: str, dtype: Any, shape: Any
    ) -> tuple[ops.ParameterHandle, list[ops.ParameterHandle]]:
        """Return the server's handle and the workers'."""
        return self.handles_of(ops.parameter(name, dtype, shape, server="ps:0"))

    def handles_of(
        self, parameter: ops.Parameter
    ) -> tuple[ops.ParameterHandle, list[ops.ParameterHandle]]:
        """Return the server's handle of a parameter and the workers'."""
        return parameter.handle(self.server), [parameter.handle(d) for d in self.workers]

    def serve(self, *handles: ops.ParameterHandle, contributors: int, **options: Any) -> None:
        """Serve the parameters of these handles."""
        with tf.device(self.server):
            ops.serve([h.parameter for h in handles], contributors, **options)

    def on(self, worker: int, value: Any) -> Any:
        """Return the value on a worker's device."""
        with tf.device(self.workers[worker]):
            return tf.identity(value)
