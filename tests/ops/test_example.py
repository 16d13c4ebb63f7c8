"""The example runs as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_training_without_the_strategy() -> None:
    example = ROOT / "examples" / "ops_without_strategy.py"
    done = subprocess.run([sys.executable, example], check=True, stdout=subprocess.PIPE, text=True)
    assert "after 200 steps" in done.stdout
