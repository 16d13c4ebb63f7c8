"""The experiment with training, and the model of rounds against what it measures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from examples.experiments import scale
from examples.experiments.calibration import compare, predict
from examples.experiments.results import Row
from tests.strategy.cluster import ROOT


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "examples.experiments.training", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.timeout(300)
def test_training_with_few_rounds(tmp_path: Path) -> None:
    path, picture = tmp_path / "training.json", tmp_path / "training.png"
    few = ["--networks", "digits", "--step-ms", "8", "--rounds-a", "20", "--rounds-b", "20"]
    files = ["--json", str(path), "--plot", str(picture)]
    done = run(*few, "--modes", "dsana", *files)
    assert done.returncode == 0, done.stderr[-4000:]
    rows = json.loads(path.read_text())
    assert [(row["scenario"], row["mode"]) for row in rows] == [("A", "dsana"), ("B", "dsana")]
    for row in rows:
        # Steps moved, and the result is what one process computes, but for the order of sums, which
        # Adam makes more of where gradients are next to nothing.
        assert row["largest_difference"] < 1e-3
        assert row["ideal_s_per_iteration"] > 0
        assert len(row["round_s"]) == 20
        assert row["accuracy"][-1][1] > row["accuracy"][0][1]
        assert row["cpu_s"] > 0
        assert row["step_s"] >= 0.008
    # However busy the machine is, a round of scenario A lasts until the slowest worker has waited.
    assert rows[0]["s_per_iteration"] > 0.008 + 3 * rows[0]["step_s"]
    # Steps have moved from it, and none is missing.
    *_, slowest = steps = rows[0]["micro_steps"]
    assert slowest < min(steps[:2])
    assert sum(steps) == 20 * 16
    assert picture.read_bytes().startswith(b"\x89PNG")
    # Nothing is measured again.
    again = run(*few, "--modes", "dsana", "--json", str(path))
    assert again.returncode == 0, again.stderr
    assert json.loads(path.read_text()) == rows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--modes", "fast"], "'fast' is not one of baseline"),
        (["--rounds-a", "25"], "multiples of 10, from 20, not 25"),
        (["--num-steps", "2"], "a worker needs a step"),
    ],
)
def test_mistakes_are_told(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


BASE: Row = {
    "network": "digits",
    "scenario": "A",
    "mode": "network",
    "workers": 4,
    "num_steps": 16,
    "seed": 1,
    "rounds": 30,
    "counted_from": 10,
    "step_s": 0.01,
    "communication_s": 0.002,
    "overhead_s": 0.003,
    "s_per_iteration": 0.16,
}


def test_predictions_by_hand() -> None:
    # The worker that is 4 times slower has 4 steps, or 1 when steps have moved: 6, 6, 3 and 1.
    assert predict(BASE, BASE, moving=False) == pytest.approx(0.165)
    assert predict(BASE, BASE, moving=True) == pytest.approx(0.065)
    later = {**BASE, "counted_from": 0}
    assert predict(later, BASE, moving=True) == pytest.approx((3 * 0.165 + 27 * 0.065) / 30)


def test_predictions_are_for_runs_over_the_same_network() -> None:
    moved = {**BASE, "mode": "dsana", "s_per_iteration": 0.05}
    other = {**BASE, "mode": "scheduling"}
    found = compare([BASE, moved, other])
    assert [row["mode"] for row in found] == ["network", "dsana"]
    assert [row["calibrated_with"] for row in found] == [True, False]
    assert found[1]["error"] == pytest.approx(0.065 / 0.05 - 1)
    with pytest.raises(ValueError, match="no run to calibrate with"):
        compare([moved, {**BASE, "step_s": None}])


def test_calibrating_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([BASE, {**BASE, "mode": "dsana", "s_per_iteration": 0.065}]))
    assert scale.main(["--calibrate", str(path)]) == 0
    assert "errors of predictions: mean 0.0%, most 0.0%" in capsys.readouterr().out
    path.write_text("[]")
    with pytest.raises(SystemExit, match="2"):
        scale.main(["--calibrate", str(path)])
    assert "no run to calibrate with" in capsys.readouterr().err
