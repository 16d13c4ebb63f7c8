"""The examples run as they stand, as `tf-rdmabatch launch` starts them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TINY = ["--model", "MobileNet", "--image-size", "32", "--batch-size", "2"]
SHORT = ["--num-warmup-batches", "1", "--num-batches-per-iter", "1", "--num-iters", "2"]


def run(script: str, *arguments: str, launch: bool = True) -> subprocess.CompletedProcess[str]:
    """Run an example, with two workers and a server where it is launched."""
    job = ["-m", "tf_rdmabatch", "launch", "--workers", "2", "--ps", "1"] if launch else []
    return subprocess.run(
        [sys.executable, *job, str(EXAMPLES / script), *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def test_a_loop_of_ones_own() -> None:
    done = run("custom_loop.py", "--epochs", "3")
    assert done.returncode == 0, done.stderr[-4000:]
    found = re.search(r"^test accuracy ([\d.]+)%$", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout
    assert float(found[1]) > 80


@pytest.mark.parametrize("strategy", ["rdmabatch", "pss", "multiworker"])
def test_synthetic_images(strategy: str) -> None:
    options = ["--strategy", strategy, "--slow", "1=1.5", "--confirm", "each"]
    done = run("tf2_synthetic_benchmark.py", *TINY, *SHORT, *options)
    assert done.returncode == 0, done.stderr[-4000:]
    number = r"\d+\.\d"
    lines = [line for line in done.stdout.splitlines() if not line.startswith("[")]
    expected = [
        "Model: MobileNet",
        "Batch size: 2",
        "Number of workers: 2",
        r"Running warmup\.\.\.",
        r"Running benchmark\.\.\.",
        rf"Iter #0: {number} img/sec per worker",
        rf"Iter #1: {number} img/sec per worker",
        rf"Img/sec per worker: {number} \+-{number}",
        rf"Total img/sec on 2 worker\(s\): {number} \+-{number}",
    ]
    assert re.fullmatch("\n".join(expected), "\n".join(lines)), done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "resnet5"], "no model 'resnet5'; did you mean ResNet50"),
        (["--slow", "1"], "'1' is not WORKER=FACTOR"),
        ([], "--strategy rdmabatch needs a job: tf-rdmabatch launch --workers 2"),
        (["--strategy", "none", "--image-size", "8"], "ResNet50 cannot be made: "),
    ],
)
def test_mistakes_in_the_synthetic_benchmark(arguments: list[str], message: str) -> None:
    done = run("tf2_synthetic_benchmark.py", *arguments, launch=False)
    assert done.returncode in {1, 2}
    assert message in done.stderr
    assert "Traceback" not in done.stderr
