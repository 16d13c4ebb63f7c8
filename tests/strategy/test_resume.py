"""Training that lost a task and was started again ends as if nothing had happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.strategy.cluster import MakeRunner, Runner

pytestmark = pytest.mark.timeout(300)


def lose(runner: Runner, case: str, task: str, tmp_path: Path, **options: Any) -> None:
    """Run a case that saves what it does into a folder, and kill a task in the midst."""
    working = tmp_path / "working"
    runner.begin(case, interrupted=True, working=str(working), **options)
    runner.wait_for_file(working)
    runner.tasks[task].kill()
    working.unlink()
    try:
        assert runner.result(60)["ended"] == "UnavailableError"
    finally:
        runner.restart_task(task)


def assert_same(found: Any, expected: Any, but: str = "", rtol: float = 1e-5) -> None:
    assert sorted(found) == sorted(expected)
    for name, value in expected.items():
        if not but or not name.startswith(but):
            np.testing.assert_allclose(found[name], value, rtol=rtol, atol=rtol, err_msg=name)


def test_backup(breakable: Runner, tmp_path: Path) -> None:
    """A new chief's process resumes at the last epoch's end."""
    folder = str(tmp_path / "backup")
    lose(breakable, "resume_cases:fit", "worker:1", tmp_path, strategy={}, folder=folder)
    breakable.restart_chief()
    found = breakable.run("resume_cases:fit", folder=folder)
    expected = breakable.run("resume_cases:fit", folder=str(tmp_path / "another"))
    assert found["history loss"].shape == (2,)
    assert expected["history loss"].shape == (3,)
    assert_same(found, expected, but="history")


def test_backup_within_an_epoch(breakable: Runner, runners: MakeRunner, tmp_path: Path) -> None:
    """Keras begins the epoch again with the weights of its middle: so does it here."""
    options: dict[str, Any] = {"save_freq": 5, "folder": str(tmp_path / "backup")}
    lose(breakable, "resume_cases:fit", "ps:0", tmp_path, strategy={}, **options)
    found = breakable.run("resume_cases:fit", strategy={}, **options)
    options["folder"] = str(tmp_path / "plain")
    plain = runners("plain", 4)
    assert plain.run("resume_cases:fit", interrupted=True, **options)["ended"]
    expected = plain.run("resume_cases:fit", **options)
    assert found["history loss"].shape == (2,)
    assert_same(found, expected, rtol=1e-4)


def test_checkpoint(breakable: Runner, tmp_path: Path) -> None:
    """A new strategy in the same process resumes at the last checkpoint."""
    folder = str(tmp_path / "checkpoints")
    lose(breakable, "resume_cases:loop", "worker:0", tmp_path, strategy={}, folder=folder)
    found = breakable.run("resume_cases:loop", strategy={}, folder=folder)
    expected = breakable.run("resume_cases:loop", folder=str(tmp_path / "another"))
    assert int(found.pop("first")) == 20
    assert int(expected.pop("first")) == 0
    assert_same(found, expected)
