"""A killed task: whoever waits for it is told which."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("task", ["worker:1", "ps:0"])
def test_a_killed_task_is_named(task: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.ops.lost_task", task],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        text=True,
    )
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["error"] == "UnavailableError", result
    assert task in result["message"]
