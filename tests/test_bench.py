from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tf_rdmabatch import _core, cli
from tf_rdmabatch.bench import measure, report
from tf_rdmabatch.bench.cases import MIN_SLOT_BYTES, Case, plan
from tf_rdmabatch.bench.figures import FIGURES, figures_of_run, quantile_us, row_of
from tf_rdmabatch.bench.processes import ProcessPool, TaskProcess
from tf_rdmabatch.cli import CommandError

# What readers of the file rely on.
PROMISED = {
    "transport",
    "pattern",
    "confirm",
    "bytes",
    "peers",
    "messages_per_s",
    "gb_per_s",
    "p50_us",
    "p99_us",
    "cpu_s_per_gb",
    "cpu_s_per_million_messages",
    "doorbells_per_message",
    "completions_per_message",
    "acks_per_message",
    "spread",
}


def bench(tmp_path: Path, *arguments: str) -> list[dict[str, Any]]:
    path = tmp_path / "rows.json"
    common = ["bench", "engine", "--transport", "shm", "--seconds", "0.2", "--json", str(path)]
    # A busy machine lets processes count late; that does not matter for what is looked at here.
    with mock.patch.object(measure, "TOLERANCE", 0.5):
        assert cli.main([*common, *arguments]) == 0
    rows = json.loads(path.read_text())
    assert isinstance(rows, list)
    return rows


def check_figures(row: dict[str, Any]) -> None:
    assert set(row) >= PROMISED
    assert set(row["spread"]) == set(FIGURES)
    assert row["messages_per_s"] > 0
    assert row["gb_per_s"] > 0
    assert 0 < row["p50_us"] <= row["p99_us"]
    assert row["cpu_s_per_gb"] >= 0
    assert row["memory_bytes_per_peer"] >= 0


def test_messages_in_both_modes(tmp_path: Path) -> None:
    rows = bench(tmp_path, "--pattern", "one-to-one,ring", "--bytes", "64,1MiB", "--peers", "2",
                 "--repeats", "1")  # fmt: skip
    assert len(rows) == 8
    for row in rows:
        check_figures(row)
        assert row["gb_per_s"] == pytest.approx(row["messages_per_s"] * row["bytes"] / 1e9)
        # Far from 2 and 1, since the sides may have counted different intervals.
        if (row["pattern"], row["bytes"]) == ("one-to-one", 64):
            if row["confirm"] == "each":
                assert row["doorbells_per_message"] > 1
                assert row["acks_per_message"] > 1 / 2
            else:
                assert row["doorbells_per_message"] < 1 / 4
                assert row["completions_per_message"] < 1 / 4
                assert row["acks_per_message"] < 1 / 4


def test_many_peers_of_one_server(tmp_path: Path) -> None:
    rows = bench(tmp_path, "--pattern", "many-to-one,one-to-many", "--bytes", "64", "--peers",
                 "3,10", "--confirm", "batch", "--repeats", "2")  # fmt: skip
    assert {(row["pattern"], row["peers"]) for row in rows} == {
        (pattern, peers) for pattern in ("many-to-one", "one-to-many") for peers in (3, 10)
    }
    for row in rows:
        check_figures(row)
        assert 0 <= row["fairness"] <= 1
        assert row["p99_fairness"] >= 1
        assert row["memory_bytes_per_peer"] > 64 * MIN_SLOT_BYTES
        assert row["spread"]["messages_per_s"] >= 0


def test_parameters_and_copies(tmp_path: Path) -> None:
    rows = bench(tmp_path, "--pattern", "push,pull,push-pull,memcpy", "--bytes", "4KiB,1MiB",
                 "--workers", "2", "--servers", "2", "--parameters", "6", "--repeats", "1",
                 "--confirm", "batch")  # fmt: skip
    assert len(rows) == 8
    for row in rows:
        check_figures(row)
        moved = row["messages_per_s"] * (row["bytes"] // row["parameters"] // 4 * 4)
        assert row["gb_per_s"] == pytest.approx(moved / 1e9)
        if row["pattern"] == "push-pull":
            assert (row["peers"], row["servers"], row["parameters"]) == (2, 2, 6)


def test_an_idle_engine_counts_its_time_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = bench(tmp_path, "--pattern", "idle", "--bytes", "64", "--confirm", "batch",
                   "--repeats", "1")  # fmt: skip
    assert row["messages_per_s"] == 0
    assert row["p50_us"] is None
    assert row["cpu_s"] < row["seconds"]
    assert "ms of CPU time" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--transport", "pigeon"], "'pigeon' is not one of shm, verbs"),
        (["--pattern", "one-to-one,star"], "'star' is not one of"),
        (["--bytes", "64,many"], "'many' is not a size"),
        (["--bytes", "0"], "'0' is not between 1 byte and 1 GiB"),
        (["--bytes", "2GiB"], "'2GiB' is not between"),
        (["--bytes", ""], "'' is not a size"),
        (["--confirm", "never"], "'never' is not one of batch, each"),
        (["--peers", "0"], "'0' is not a whole number from 1"),
        (["--slots", "65"], "'65' is not a multiple of 64"),
        (["--slot-bytes", "300"], "'300' is not a multiple of 64"),
        (["--slot-bytes", "64"], "'64' is less than 256"),
        (["--seconds", "-1"], "'-1' is not a time"),
        (["--seconds", "nan"], "'nan' is not a time"),
        (["--repeats", "1.5"], "'1.5' is not a whole number"),
        (["--address", "localhost"], "'localhost' is not an IP address"),
        (["--pattern", "ring", "--peers", "1"], "a ring needs --peers of at least 2"),
        (["--pattern", "push", "--bytes", "3"], "push needs --bytes of at least 4"),
        (["--json", "/no/such/folder/x.json"], "there is no folder /no/such/folder"),
    ],
)
def test_wrong_input_is_one_error_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status: object = cli.main(["bench", "engine", "--transport", "shm", *arguments])
    except SystemExit as stopped:
        status = stopped.code
    output, errors = capsys.readouterr()
    assert status == 2
    assert output == ""
    assert message in errors
    assert errors.count("error:") == 1


def test_a_transport_that_cannot_run_is_left_out_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    present = [("shm", True, ""), ("verbs", False, "no RDMA device")]
    monkeypatch.setattr(_core, "transports", lambda: present)
    rows = bench(tmp_path, "--transport", "shm,verbs", "--pattern", "memcpy", "--bytes", "64",
                 "--repeats", "1")  # fmt: skip
    assert {row["transport"] for row in rows} == {"shm"}
    assert capsys.readouterr().err.count("verbs is left out: no RDMA device") == 1
    assert cli.main(["bench", "engine", "--transport", "verbs"]) == 1
    assert "no RDMA device" in capsys.readouterr().err


def test_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plot.png"
    with monkeypatch.context() as patched:
        patched.setattr(importlib.util, "find_spec", lambda _: None)
        assert cli.main(["bench", "engine", "--plot", str(path)]) == 2
    assert "pip install 'tf-rdmabatch[plots]'" in capsys.readouterr().err
    pytest.importorskip("matplotlib")
    bench(tmp_path, "--pattern", "one-to-one,memcpy", "--bytes", "64,4KiB", "--repeats", "1",
          "--plot", str(path))  # fmt: skip
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_failed_task_is_named() -> None:
    process = TaskProcess()
    try:
        process.send("create", role="conductor")
        with pytest.raises(CommandError, match="no such role: conductor"):
            process.receive(60)
        process.send("create", wings=2)
        with pytest.raises(CommandError, match="no such option: wings"):
            process.receive(60)
    finally:
        process.close()


def test_a_silent_process_is_given_up() -> None:
    process = TaskProcess()
    try:
        with pytest.raises(CommandError, match="did not answer"):
            process.receive(0.01)
    finally:
        process.close()


def test_quantiles_are_those_of_all_samples() -> None:
    fast = [(1000, 98), (2000, 1)]
    slow = [(9000, 1)]
    assert quantile_us([fast, slow], 0.5) == 1
    assert quantile_us([fast, slow], 0.99) == 2
    assert quantile_us([fast, slow], 1) == 9
    assert quantile_us([[], []], 0.5) is None


def test_figures_add_up_both_sides() -> None:
    case = Case("shm", "many-to-one", "batch", bytes=1000, peers=2)
    names = ("doorbells", "send_completions", "receive_completions", "acks")
    sender = {
        "seconds": 2.0,
        "cpu_s": 1.0,
        "messages": 0,
        "counters": dict.fromkeys(names, 10),
        "peers": [{"messages": 0, "latencies": [(5000, 4)]}],
        "memory_bytes_per_peer": 7,
    }
    peers = [{"messages": 30, "latencies": []}, {"messages": 70, "latencies": []}]
    server = {**sender, "cpu_s": 3.0, "messages": 100, "peers": peers}
    run = figures_of_run(case, [server, sender], [server, sender])
    assert run["messages_per_s"] == 50
    assert run["gb_per_s"] == pytest.approx(5e-5)
    assert run["cpu_s_per_million_messages"] == pytest.approx(4e4)
    assert run["cpu_s_per_gb"] == pytest.approx(4e4)
    assert run["doorbells_per_message"] == pytest.approx(0.2)
    assert run["completions_per_message"] == pytest.approx(0.4)
    assert run["fairness"] == pytest.approx(0.6)
    assert run["p50_us"] == 5
    slower = {**run, "messages_per_s": 40.0}
    faster = {**run, "messages_per_s": 60.0}
    row = row_of(case, [run, slower, faster])
    assert row["messages_per_s"] == 50
    assert row["spread"]["messages_per_s"] == pytest.approx(0.4)


def test_a_run_that_was_not_counted_together_is_taken_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case("shm", "one-to-one", "batch", bytes=64)
    measure.check_interval([{"seconds": 0.301}, {"seconds": 0.299}], 0.3)
    with pytest.raises(measure.LateRunError):
        measure.check_interval([{"seconds": 0.3}, {"seconds": 0.196}], 0.3)

    outcomes: list[float | None] = [None, None, 5.0, 0.0]

    def attempt(*_: Any, **__: Any) -> dict[str, float | None]:
        rate = outcomes.pop(0) if outcomes else None
        if rate is None:
            raise measure.LateRunError
        return {"messages_per_s": rate}

    monkeypatch.setattr(measure, "_attempt", attempt)
    with ProcessPool() as pool:
        assert measure.run_case(pool, case, 0.3, "127.0.0.1")["late_runs"] == 2
        with pytest.raises(CommandError, match="nothing arrived"):
            measure.run_case(pool, case, 0.3, "127.0.0.1")
        with pytest.raises(CommandError, match="too busy"):
            measure.run_case(pool, case, 0.3, "127.0.0.1")


def test_plans() -> None:
    incast = plan(Case("shm", "many-to-one", "batch", bytes=64, peers=64))
    assert len(incast) == 9
    assert sum(task.connections for task in incast if task.connects_to) == 64
    assert incast[0].awaits == 64
    ring = plan(Case("shm", "ring", "batch", bytes=64, peers=3))
    assert [task.connects_to for task in ring] == [(1,), (2,), (0,)]
    rounds = plan(Case("shm", "push-pull", "batch", bytes=100, peers=2, servers=3, parameters=7))
    assert [task.options["role"] for task in rounds] == ["server"] * 3 + ["worker"] * 2
    assert rounds[-1].connects_to == (0, 1, 2)
    assert rounds[-1].options["bytes"] == 7 * 12


def test_sizes_read_well() -> None:
    assert report.format_bytes(64) == "64 B"
    assert report.format_bytes(65536) == "64 KiB"
    assert report.format_bytes(100 << 20) == "100 MiB"
