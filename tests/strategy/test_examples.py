"""The examples run as they stand, as `tf-rdmabatch launch` starts them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def launch(script: str, *arguments: str) -> str:
    """Run an example with two workers and a server, and return what it prints."""
    command = [sys.executable, "-m", "tf_rdmabatch", "launch", "--workers", "2", "--ps", "1"]
    done = subprocess.run(
        [*command, str(ROOT / "examples" / script), *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_a_loop_of_ones_own() -> None:
    output = launch("custom_loop.py", "--epochs", "3")
    found = re.search(r"^test accuracy ([\d.]+)%$", output, re.MULTILINE)
    assert found is not None, output
    assert float(found[1]) > 80
