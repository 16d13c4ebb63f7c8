"""A cluster of processes for the tests of the ops: two workers and a server, driven from here."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    tf: Any = pytest.importorskip("tensorflow")
    from tf_rdmabatch import ops

TOKEN = "the token of these tests"
WORKERS = 2


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Job:
    """Tasks whose engines are started and connected, by their devices."""

    def __init__(self, processes: dict[str, subprocess.Popen[str]]) -> None:
        self.processes = processes
        self.names = list(processes)
        self.devices = {
            name: "/job:{}/replica:0/task:{}/device:CPU:0".format(*name.split(":"))
            for name in self.names
        }
        self.server = self.devices["ps:0"]
        self.workers = [self.devices[f"worker:{i}"] for i in range(WORKERS)]

    def start(self, **options: Any) -> None:
        with tf.device(self.server):
            address = ops.configure("ps:0", TOKEN, **options)
        for index, device in enumerate(self.workers):
            with tf.device(device):
                ops.configure(f"worker:{index}", TOKEN, **options)
                ops.connect({"ps:0": address}, timeout=20)

    def handles(
        self, name: str, dtype: Any, shape: Any, **options: Any
    ) -> tuple[ops.ParameterHandle, list[ops.ParameterHandle]]:
        """Return the server's handle and the workers'."""
        served = ops.parameter_handle(name, dtype, shape, server="ps:0", device=self.server)
        pulled = [
            ops.parameter_handle(
                name, dtype, shape, server="ps:0", device=device, contributor=index, **options
            )
            for index, device in enumerate(self.workers)
        ]
        return served, pulled


def start_processes() -> tuple[dict[str, subprocess.Popen[str]], dict[str, list[str]]]:
    tasks = [f"worker:{i}" for i in range(WORKERS)] + ["ps:0", "chief:0"]
    cluster: dict[str, list[str]] = {}
    for task, port in zip(tasks, free_ports(len(tasks)), strict=True):
        cluster.setdefault(task.split(":")[0], []).append(f"127.0.0.1:{port}")
    script = Path(__file__).parent / "tf_server.py"
    processes = {
        task: subprocess.Popen(
            [sys.executable, script, *task.split(":"), json.dumps(cluster)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for task in tasks[:-1]
    }
    for task, process in processes.items():
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n", f"{task} did not start"
    return processes, cluster


@pytest.fixture(scope="session")
def cluster_job() -> Iterator[Job]:
    processes, cluster = start_processes()
    try:
        tf.config.experimental_connect_to_cluster(
            tf.train.ClusterSpec(cluster), job_name="chief", task_index=0, protocol="grpc"
        )
        yield Job(processes)
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()


@pytest.fixture
def job(cluster_job: Job) -> Job:
    """Return the cluster with fresh engines."""
    cluster_job.start()
    return cluster_job
