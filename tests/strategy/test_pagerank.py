"""PageRank by virtual replicas against SciPy's, and the command of the experiment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.experiments.graphs import generate, partition
from examples.experiments.pagerank_reference import reference
from tests.strategy.cluster import ROOT, MakeRunner

pytestmark = pytest.mark.timeout(300)
ITERATIONS = 60


@pytest.mark.parametrize("pieces", [1, 3])
def test_ranks_are_those_of_scipy(runners: MakeRunner, tmp_path: Path, pieces: int) -> None:
    graph = partition(generate("small", 1000, 8000), 4, tmp_path)
    found = runners("cluster", 4, 2, 1).run(
        "pagerank_cases:ranks", folder=str(tmp_path), pieces=pieces, iterations=ITERATIONS
    )
    expected = reference(graph, ITERATIONS)
    assert np.abs(found["ranks"] - expected).sum() < 1e-9
    assert found["ranks"].sum() == pytest.approx(1)
    before = np.abs(expected - reference(graph, ITERATIONS - 1)).sum()
    assert found["residuals"][-1] == pytest.approx(before, rel=1e-3)
    assert found["residuals"][0] > 0.1
    np.testing.assert_allclose(found["reset"], 1e-3)


def test_the_command_goes_on_where_it_was(tmp_path: Path) -> None:
    edges = np.random.default_rng(1).integers(0, 200, (2000, 2))
    graph = tmp_path / "small.txt"
    np.savetxt(graph, edges, fmt="%d", header="a comment")
    files = {"--json": tmp_path / "rows.json", "--plot": tmp_path / "plot.png"}
    command = [sys.executable, "-m", "examples.experiments.pagerank", "--graphs", str(graph)]
    command += ["--scenarios", "A", "--workers", "2", "--steps", "8", "--iterations", "12"]
    command += ["--cache", str(tmp_path / "cache")]
    command += [str(word) for pair in files.items() for word in pair]

    def run(modes: str) -> list[dict[str, Any]]:
        done = subprocess.run(
            [*command, "--modes", modes],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        rows: list[dict[str, Any]] = json.loads(files["--json"].read_text())
        return rows

    rows = run("baseline,dsana")
    assert [row["mode"] for row in rows] == ["baseline", "dsana"]
    for row in rows:
        assert row["l1_error"] < 1e-9
        assert row["ideal_s_per_iteration"] > 0
        assert row["cpu_s"] > 0
        # However busy the machine is, a round lasts until each worker has waited as it has to.
        for seconds, allotment in zip(row["iteration_s"], row["allotments"], strict=True):
            for steps, factor in zip(allotment, (2, 4), strict=True):
                assert seconds > 0.99 * steps * (factor * row["base_s"] - row["own_s"])
        assert (row["workers"], row["num_steps"], row["scenario"]) == (2, 8, "A")
    assert rows[0]["moves"] == 0
    assert rows[0]["allotments"] == [[4, 4]] * 12
    # How many steps leave the slower worker, and when, is for the times to say.
    assert rows[1]["allotments"][0] == [4, 4]
    assert any(slow < fast for fast, slow in rows[1]["allotments"])
    assert all(sum(allotment) == 8 for allotment in rows[1]["allotments"])
    # Nothing is missing: no cluster is started for it.
    assert run("baseline,dsana") == rows
    assert files["--plot"].stat().st_size > 1000
