"""The commands of docs/jobs.md, in terminals of their own."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tf_rdmabatch.launch.cluster import free_ports

ROOT = Path(__file__).resolve().parents[1]
PORTS = ("29400", "29401", "29402")


def terminals() -> dict[str, str]:
    """Return what is typed for each task."""
    section = (ROOT / "docs" / "jobs.md").read_text().split("## By hand", 1)[1].split("\n## ", 1)[0]
    tasks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    names = [re.search(r'"type": "(\w+)"', task) for task in tasks]
    return {n.group(1): task for n, task in zip(names, tasks, strict=True) if n is not None}


@pytest.mark.parametrize("role", ["ps", "worker", "chief"])
def test_the_script_sets_what_is_typed(role: str, tmp_path: Path) -> None:
    """With a `python` that shows what it was started with."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$TF_CONFIG"\necho "python $*"\n')
    python.chmod(0o755)
    done = subprocess.run(
        ["sh", "examples/three_terminals.sh", role],
        cwd=ROOT,
        env={"PATH": os.pathsep.join([str(tmp_path), os.environ["PATH"]])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert terminals()[role] == "export TF_CONFIG='{}'\n{}\n".format(*done.stdout.splitlines())


def test_the_script_says_how_it_is_used() -> None:
    done = subprocess.run(
        ["sh", "examples/three_terminals.sh"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "ps|worker|chief" in done.stderr


@pytest.mark.timeout(300)
@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow")
def test_a_job_by_hand(tmp_path: Path) -> None:
    """The chief first, the others later; they end after it."""
    tasks = terminals()
    assert sorted(tasks) == ["chief", "ps", "worker"]
    ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))

    def start(name: str) -> subprocess.Popen[bytes]:
        script = tasks[name]
        for known, free in ports.items():
            script = script.replace(known, free)
        if name != "chief":
            script = script.rstrip() + " --linger 1\n"
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        with (tmp_path / name).open("wb") as output:
            return subprocess.Popen(
                ["sh", "-ec", script],
                cwd=ROOT,
                env=os.environ | {"PATH": path, "CUDA_VISIBLE_DEVICES": ""},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    running = {"chief": start("chief")}
    try:
        time.sleep(3)
        running |= {name: start(name) for name in ("worker", "ps")}
        for process in running.values():
            assert process.wait(timeout=120) == 0, (tmp_path / "chief").read_text()
        assert "test accuracy" in (tmp_path / "chief").read_text()
    finally:
        for process in running.values():
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.wait()
