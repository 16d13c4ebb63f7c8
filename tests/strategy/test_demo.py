"""The demo, with few steps: it prints what it promises and draws its picture."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from examples.demo.timeline import server_bars, with_gaps, worker_bars
from tests.strategy.cluster import ROOT

FIELDS = """
pull_begin pull_wait pull_end micro_steps compute_end push_end push_wait
publish_begin publish_end collect_begin collect_wait collect_end update_end
"""


@pytest.mark.timeout(300)
def test_the_demo_with_few_steps(tmp_path: Path) -> None:
    picture = tmp_path / "timeline.png"
    few = ["--epochs", "1", "--turns", "1", "--steps", "5", "--picture", str(picture)]
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo.run", *few],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for line in (
        r".*25/25",
        r"test accuracy    \d+\.\d% after 1 epochs",
        r"time per step    \d+\.\d ms with tf_rdmabatch",
        r"                 \d+\.\d ms with the stock strategy over gRPC",
        # 76,522 float32 for each of two workers.
        r"moved per step   0\.61 MB pulled by both workers together,",
        r"                 0\.61 MB pushed",
        r"timeline         .*timeline\.png",
        r"time per step    \d+\.\d ms with replicas \[4, 4\]",
        r"                 \d+\.\d ms with StepReallocation, which ended at",
        r"                 \[\d, \d\]",
        r"result           final weights differ by at most (0|\de-(0[6-9]|1\d))",
        r"timeline         .*straggler\.png",
    ):
        assert re.search(f"^{line}", done.stdout, re.MULTILINE), (line, done.stdout[-2000:])
    shown = r"tf_rdmabatch: worker:0 at .*, ps:0 at .*; transport shm .*; 2 virtual replicas"
    assert re.search(shown, done.stderr)
    assert re.search(r"tf_rdmabatch: ps:0 has \d+ variables, [\d,]+ bytes", done.stderr)
    for path in (picture, picture.with_name("straggler.png")):
        assert path.read_bytes().startswith(b"\x89PNG")


def test_bars_of_rounds() -> None:
    fields = [(field, np.int64) for field in FIELDS.split()]
    rows = np.zeros(1, [*fields, ("micro_step_end", np.int64, (16,))])
    row = rows[0]
    row["pull_begin"], row["pull_wait"], row["pull_end"] = 10, 5, 20
    row["micro_steps"], row["micro_step_end"][:2], row["compute_end"] = 2, (30, 40), 40
    row["push_end"], row["push_wait"] = 50, 4
    assert list(worker_bars(row)) == [
        ("wait", 10, 15),
        ("pull", 15, 20),
        ("compute", 20, 30),
        ("compute", 30, 40),
        ("push", 40, 46),
        ("wait", 46, 50),
    ]
    row["publish_begin"], row["publish_end"] = 5, 7
    row["collect_begin"], row["collect_wait"], row["collect_end"], row["update_end"] = 8, 40, 52, 60
    assert list(server_bars(row)) == [("publish", 5, 7), ("wait", 8, 48), ("update", 48, 60)]
    rounds = [[("pull", 1, 2), ("push", 3, 3)], [("pull", 5, 6)]]
    assert list(with_gaps(rounds)) == [("pull", 1, 2), ("wait", 2, 5), ("pull", 5, 6)]
