"""Training steps measured over jobs of real processes, briefly: what is promised of the figures."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tf_rdmabatch import cli
from tf_rdmabatch.bench.cpu_time import descendants, machine_seconds, processes_seconds
from tf_rdmabatch.bench.strategy_measure import FIGURES, hidden_shares, summarise

# What readers of the file rely on.
PROMISED = {"work", "system", "steps_per_s", "gb_per_s", "cpu_s_per_gb", "other_load"}

needs_tensorflow = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"
)


@needs_tensorflow
def test_the_file_has_a_row_for_each_system(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.json"
    arguments = ["--work", "trivial", "--seconds", "0.5", "--repeat", "1", "--json", str(path)]
    if importlib.util.find_spec("matplotlib") is not None:
        arguments += ["--plot", str(tmp_path / "rows.png")]
    assert cli.main(["bench", "strategy", *arguments]) == 0
    rows: list[dict[str, Any]] = json.loads(path.read_text())
    assert [(row["work"], row["system"]) for row in rows] == [
        ("trivial", "tf_rdmabatch"),
        ("trivial", "stock"),
    ]
    for row in rows:
        assert set(row) >= PROMISED
        assert set(row["spread"]) == set(FIGURES)
        assert row["bytes_per_step"] == 8
        assert row["steps_per_s"] > 0
        assert row["gb_per_s"] == pytest.approx(row["steps_per_s"] * 8 / 1e9)
        assert row["cpu_s_per_gb"] == pytest.approx(row["cpu_s_per_step"] / 8e-9)
        assert row["other_load"] >= 0
    assert "trivial" in capsys.readouterr().out
    if "--plot" in arguments:
        assert (tmp_path / "rows.png").read_bytes().startswith(b"\x89PNG")


@needs_tensorflow
def test_layers_compute_and_communicate(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    arguments = ["--work", "layers-1:1", "--system", "tf_rdmabatch", "--seconds", "0.5"]
    assert cli.main(["bench", "strategy", *arguments, "--repeat", "1", "--json", str(path)]) == 0
    (row,) = json.loads(path.read_text())
    assert row["bytes_per_step"] == 2 * 100 << 20
    assert min(row["round_s"], row["compute_s"], row["communication_s"]) > 0
    assert 0 <= row["hidden_of_possible"] <= 1


def test_what_can_be_hidden() -> None:
    shares = hidden_shares(round_s=5, compute_s=2, communication_s=4)
    assert shares == {"hidden_share": 0.25, "hidden_of_possible": 0.5}
    shares = hidden_shares(round_s=4, compute_s=4, communication_s=1)
    assert shares == {"hidden_share": 1, "hidden_of_possible": 1}
    shares = hidden_shares(round_s=9, compute_s=4, communication_s=4)
    assert shares == {"hidden_share": 0, "hidden_of_possible": 0}


@needs_tensorflow
def test_an_interrupt_ends_all_processes() -> None:
    command = [sys.executable, "-m", "tf_rdmabatch", "bench", "strategy", "--work", "trivial"]
    bench = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 100
    # The benchmark, and for each of two systems the launcher, a server, two workers, the chief.
    while len(started := descendants(bench.pid)) < 11:
        assert time.monotonic() < until, f"only {len(started)} processes were started"
        assert bench.poll() is None
        time.sleep(0.05)
    bench.send_signal(signal.SIGINT)
    assert bench.wait(timeout=60) == 130
    until = time.monotonic() + 60
    # Whoever is last of its parents may have to be reaped by the system yet.
    while left := [pid for pid in started if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < until, f"{left} are left"
        time.sleep(0.05)


@needs_tensorflow
def test_a_task_that_ends_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nif 'serve' in sys.orig_argv: sys.exit('this task has no luck')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    command = [sys.executable, "-m", "tf_rdmabatch", "bench", "strategy", "--system", "stock"]
    bench = subprocess.run(
        [*command, "--work", "trivial"], capture_output=True, text=True, timeout=100, check=False
    )
    assert bench.returncode == 1
    assert "trivial on stock failed: " in bench.stderr
    assert "this task has no luck" in bench.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--work", "trivial,all"], "'all' is not one of one-100MiB, 160-100MiB, 2000-4KiB"),
        (["--system", "ps-lite"], "'ps-lite' is not one of tf_rdmabatch, stock"),
        (["--workers", "0"], "'0' is not a whole number from 1"),
        (["--servers", "0"], "'0' is not a whole number from 1"),
        (["--repeat", "0"], "'0' is not a whole number from 1"),
        (["--seconds", "0"], "'0' is not a time"),
    ],
)
def test_wrong_input_is_one_error(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["bench", "strategy", *arguments])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_without_tensorflow_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert cli.main(["bench", "strategy"]) == 1
    assert "needs TensorFlow: pip install 'tf-rdmabatch[tensorflow]'" in capsys.readouterr().err


@needs_tensorflow
def test_a_folder_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "strategy", "--json", "/no/such/folder/x.json"]) == 2
    assert "there is no folder /no/such/folder" in capsys.readouterr().err


def run_of(rate: float, other_load: float) -> dict[str, float]:
    return dict.fromkeys(FIGURES, 1.0) | {
        "steps_per_s": rate,
        "other_load": other_load,
        "seconds": 1.0,
    }


def test_quiet_runs_count_where_there_are_any() -> None:
    runs = [run_of(10, 0.0), run_of(4, 1.0), run_of(12, 0.05)]
    row = summarise(runs)
    assert (row["runs"], row["quiet_runs"]) == (3, 2)
    assert row["steps_per_s"] == 11
    assert row["spread"]["steps_per_s"] == pytest.approx(2 / 11)
    row = summarise([run_of(10, 0.5), run_of(4, 1.0), run_of(12, 2.0)])
    assert (row["runs"], row["quiet_runs"]) == (3, 0)
    assert row["steps_per_s"] == 10


def test_cpu_time_of_a_child_is_counted() -> None:
    machine = machine_seconds()
    spin = "import time\nwhile time.process_time() < 0.5: pass\nprint('done', flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", spin], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "done\n"
    assert child.pid in descendants(os.getpid())
    # The kernel's clock for this advances in steps.
    assert 0.4 < processes_seconds([child.pid]) < 5
    assert machine_seconds() - machine > 0.4
    child.communicate("\n")
    assert child.wait() == 0
    assert processes_seconds([child.pid]) == 0
