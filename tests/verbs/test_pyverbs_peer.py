"""The verbs transport against a peer that is written with pyverbs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = Path(os.environ.get("TF_RDMABATCH_BUILD_DIR", ROOT / "build" / "release"))
TOOL = BUILD / "tests" / "transport_peer"
PEER = Path(__file__).with_name("pyverbs_peer.py")

pytestmark = pytest.mark.verbs


@pytest.fixture(scope="module")
def interpreter() -> str:
    """Find an interpreter with pyverbs: this one, or the system's."""
    reasons = []
    for candidate in (sys.executable, "/usr/bin/python3"):
        done = subprocess.run(
            [candidate, "-c", "import pyverbs.cmid"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode == 0:
            return candidate
        reasons.append(f"{candidate}: {done.stderr.strip().splitlines()[-1]}")
    pytest.skip("no pyverbs (apt-get install python3-pyverbs): " + "; ".join(reasons))


@pytest.fixture(scope="module")
def tool() -> str:
    """Find transport_peer, and ask it whether verbs can run here."""
    if not TOOL.exists():
        pytest.skip(f"{TOOL} is not built: make build")
    probe = subprocess.run([TOOL, "verbs"], capture_output=True, text=True, timeout=60, check=False)
    if probe.returncode != 0:
        pytest.skip(probe.stderr.strip())
    return str(TOOL)


@pytest.mark.parametrize("scenario", ["exchange", "wrong_cookie", "garbage"])
def test_pyverbs_peer(tool: str, interpreter: str, scenario: str) -> None:
    done = subprocess.run(
        [interpreter, str(PEER), tool, scenario],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("passed\n")
