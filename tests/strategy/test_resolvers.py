"""Clusters that other resolvers than TF_CONFIG's describe."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.strategy.cluster import ROOT, free_ports

pytestmark = pytest.mark.timeout(300)
JOBS = ("chief", "ps", "worker")


def run_job(
    arguments: Sequence[Sequence[str]], environments: Sequence[dict[str, str]]
) -> list[subprocess.CompletedProcess[str]]:
    """Run a task for each list of arguments, the chief first, and return how they ended."""
    base = {k: v for k, v in os.environ.items() if k not in ("TF_CONFIG", "TF_RDMABATCH_TOKEN")}
    base |= {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
    tasks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.strategy.resolved_task", *own],
            cwd=ROOT,
            env=base | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for own, environment in zip(arguments, environments, strict=True)
    ]
    try:
        return [
            subprocess.CompletedProcess(t.args, t.returncode, output)
            for t, output in ((t, t.communicate(timeout=180)[0]) for t in tasks)
        ]
    finally:
        for task in tasks:
            task.kill()


def test_simple_resolver() -> None:
    cluster = {job: [f"127.0.0.1:{p}"] for job, p in zip(JOBS, free_ports(3), strict=True)}
    tasks = run_job([["simple", json.dumps(cluster), job, "0"] for job in JOBS], [{}] * 3)
    assert "total 7.0" in tasks[0].stdout
    assert [t.returncode for t in tasks] == [0, 0, 0], [t.stdout for t in tasks]


def test_slurm_resolver() -> None:
    """Slurm numbers the tasks over the jobs in alphabetical order, and their ports from a base."""
    base = _consecutive_ports(3)
    environments = [
        {
            "SLURM_PROCID": str(rank),
            "SLURM_STEP_NUM_TASKS": "3",
            "SLURM_STEP_NODELIST": "localhost",
            "SLURM_STEP_TASKS_PER_NODE": "3",
        }
        for rank in range(3)
    ]
    tasks = run_job([["slurm", str(base)]] * 3, environments)
    assert "total 7.0" in tasks[0].stdout
    assert [t.returncode for t in tasks] == [0, 0, 0], [t.stdout for t in tasks]


def _consecutive_ports(count: int) -> int:
    """Return the first of some ports in a row that nobody listens at."""
    for first in range(20000, 30000, count):
        try:
            for port in range(first, first + count):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise RuntimeError("no free ports")
