"""Clocks of a job's hosts may differ by hours."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.strategy.cluster import ROOT, Runner

pytestmark = pytest.mark.timeout(300)

HOURS = 5
UNSHARE = ["unshare", "--time", "--fork", "--kill-child", "--monotonic", str(3600 * HOURS)]
# In C++ and in Python.
TIME_OF_DAY = re.compile(r"CLOCK_REALTIME|system_clock|gettimeofday|\btime\((?:NULL|nullptr|0)\)")
PYTHONS = re.compile(r"\btime\.time\(|\bdatetime\b")
# TensorBoard shows when something was; the others tell people that clocks differ, and go on.
MAY = ("strategy/scalars.py", "tf_rdmabatch/launch/", "tf_rdmabatch/check/")


def test_a_worker_whose_clock_is_hours_ahead(
    breakable: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The clock of times and deadlines, which begins when a host does."""
    known = shutil.which("unshare") is not None
    if not known or subprocess.run([*UNSHARE, "true"], check=False).returncode != 0:
        pytest.skip("needs unshare, and the right to make a time namespace")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {" ".join(UNSHARE)} -- {sys.executable} "$@"\n')
    python.chmod(0o755)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", str(python))
        breakable.restart_task("worker:1")
    try:
        found = breakable.run("start_cases:clocks", strategy={})
    finally:
        breakable.restart_task("worker:1")
    ahead = found["worker:1"] - found["worker:0"]
    assert abs(ahead - 3600 * HOURS) < 1800
    assert found["value"] == 9
    assert found["allotment"].sum() == 4


def test_no_task_looks_at_the_time_of_day() -> None:
    """So it cannot be compared with another host's."""
    found = []
    for folder in ("tf_rdmabatch", "ops", "strategy"):
        for path in (ROOT / folder).rglob("*"):
            pattern = {".cc": TIME_OF_DAY, ".h": TIME_OF_DAY, ".py": PYTHONS}.get(path.suffix)
            name = path.relative_to(ROOT).as_posix()
            if not pattern or name.startswith(MAY):
                continue
            if pattern.search(path.read_text(encoding="utf-8")):
                found.append(name)
    assert found == []
