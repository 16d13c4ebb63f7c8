"""The role of a process in a step of Slurm. The environments are those that srun's manual tells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tf_rdmabatch import cli
from tf_rdmabatch.cli import CommandError
from tf_rdmabatch.launch import role, slurm
from tf_rdmabatch.launch.cluster import Task
from tf_rdmabatch.launch.nodelist import expand_counts, expand_nodes, expand_ports


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("node1", ["node1"]),
        ("a,b", ["a", "b"]),
        ("node[01-03,7]", ["node01", "node02", "node03", "node7"]),
        ("node[8-11]", ["node8", "node9", "node10", "node11"]),
        ("gpu[098-101],login", ["gpu098", "gpu099", "gpu100", "gpu101", "login"]),
        ("r[1-2]n[1,3].cluster", ["r1n1.cluster", "r1n3.cluster", "r2n1.cluster", "r2n3.cluster"]),
        ("a[1]b,c-d", ["a1b", "c-d"]),
    ],
)
def test_lists_of_nodes(text: str, nodes: list[str]) -> None:
    assert expand_nodes(text) == nodes


@pytest.mark.parametrize(
    "text",
    ["", "a,", "a[", "a]", "a[1", "a[]", "a[x]", "a[3-1]", "a[1-2-3]", "a[[1]]", "a[0-9999999]"],
)
def test_lists_of_nodes_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a (list|range)"):
        expand_nodes(text)


def test_too_many_nodes() -> None:
    with pytest.raises(ValueError, match="more than 65536 nodes"):
        expand_nodes("a[1-60000],b[1-60000]")


def test_counts_and_ports() -> None:
    assert expand_counts("2(x3),1") == [2, 2, 2, 1]
    assert expand_counts("4") == [4]
    assert expand_ports("12000-12002,12010") == [12000, 12001, 12002, 12010]
    for text in ("", "x", "1(x0)", "1(x99999999)", "1,,2"):
        with pytest.raises(ValueError, match="is not a list of counts"):
            expand_counts(text)
    for text in ("", "x", "70000", "5-4", "0"):
        with pytest.raises(ValueError, match="is not a list of ports"):
            expand_ports(text)


def environment(rank: int, node: int, nodes: str = "n[1-2]", counts: str = "3,2") -> dict[str, str]:
    return {
        "SLURM_JOB_ID": "1234",
        "SLURM_PROCID": str(rank),
        "SLURM_NODEID": str(node),
        "SLURM_STEP_NUM_TASKS": str(sum(expand_counts(counts))),
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_TASKS_PER_NODE": counts,
    }


def step(ps: int = 2, port: int | None = 5000, **changes: str) -> list[Task]:
    nodes = [0, 0, 0, 1, 1]
    return [slurm.task_of(environment(i, n) | changes, None, ps, port) for i, n in enumerate(nodes)]


def test_roles() -> None:
    """The first is the chief, and each node has a server."""
    tasks = step()
    assert [task.name for task in tasks] == ["chief:0", "ps:0", "worker:0", "ps:1", "worker:1"]
    clusters = {json.dumps(json.loads(task.tf_config)["cluster"]) for task in tasks}
    assert len(clusters) == 1
    assert json.loads(clusters.pop()) == {
        "chief": ["n1:5000"],
        "ps": ["n1:5001", "n2:5000"],
        "worker": ["n1:5002", "n2:5001"],
    }
    assert json.loads(tasks[3].tf_config)["task"] == {"type": "ps", "index": 1}


def test_servers_go_where_there_is_room() -> None:
    tasks = [
        slurm.task_of(environment(i, n, "a,b", "1,5"), 2, 3, 1) for i, n in enumerate([0] + [1] * 5)
    ]
    assert [task.job for task in tasks] == ["chief", "ps", "ps", "ps", "worker", "worker"]


def test_tasks_that_go_round_nodes() -> None:
    nodes = [0, 1, 0, 1, 0]
    tasks = [
        slurm.task_of(environment(i, n) | {"SLURM_DISTRIBUTION": "cyclic:block"}, None, 1, 5000)
        for i, n in enumerate(nodes)
    ]
    assert [(t.name, t.host, t.port) for t in tasks] == [
        ("chief:0", "n1", 5000),
        ("worker:0", "n2", 5000),
        ("ps:0", "n1", 5001),
        ("worker:1", "n2", 5001),
        ("worker:2", "n1", 5002),
    ]


def test_ports() -> None:
    first = 10000 + 64 * (1234 % 320)
    assert [task.port for task in step(port=None)] == [
        first,
        first + 1,
        first + 2,
        first,
        first + 1,
    ]
    reserved = step(port=None, SLURM_STEP_RESV_PORTS="12000-12001,12005")
    assert [task.port for task in reserved] == [12000, 12001, 12005, 12000, 12001]
    assert step(SLURM_STEP_RESV_PORTS="12000-12002")[0].port == 5000
    with pytest.raises(CommandError, match="reserved 2 ports, and a node has 3 tasks: srun --resv"):
        step(port=None, SLURM_STEP_RESV_PORTS="12000-12001")


@pytest.mark.parametrize(
    ("changes", "ps", "message"),
    [
        ({}, 4, "5 tasks, which are a chief, 4 ps and 0 workers: that does not fit --ps 4"),
        ({"SLURM_NODEID": "1"}, 1, "task 0 runs on node 1 of the step, and the .* it to be on 0"),
        (
            {"SLURM_STEP_NUM_TASKS": "6"},
            1,
            r"contradict each other: 2 nodes with \[3, 2\] tasks, 6",
        ),
        ({"SLURM_STEP_NODELIST": "n[1"}, 1, "not that of a step which srun started: 'n.1' is not"),
        ({"SLURM_PROCID": "x"}, 1, "not that of a step which srun started: invalid literal"),
    ],
)
def test_steps_that_do_not_fit(changes: dict[str, str], ps: int, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        slurm.task_of(environment(0, 0) | changes, None, ps, None)


def test_a_variable_that_is_not_there() -> None:
    with pytest.raises(CommandError, match="not that of a step which srun started: 'SLURM_PROCID'"):
        slurm.task_of({}, None, 1, None)


def test_workers_that_were_asked_for() -> None:
    assert slurm.task_of(environment(0, 0), 3, 1, None).job == "chief"
    with pytest.raises(CommandError, match="does not fit --ps 1 and --workers 2; change srun"):
        slurm.task_of(environment(0, 0), 2, 1, None)


def test_what_is_a_step() -> None:
    assert role.manager_of(environment(0, 0)) == "slurm"
    # A batch script, or an interactive shell: one process, which may start a job of its own.
    assert role.manager_of(environment(0, 0, "n1", "1")) is None
    assert role.manager_of({"SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}) is None


def test_the_command_becomes_the_chief(tmp_path: Path) -> None:
    """So that its exit status and its signals are the script's."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys; print(os.getpid(), os.environ['TF_CONFIG'], sys.argv[1:]); sys.exit(7)"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "tf_rdmabatch", "launch", str(script), "--x"],
        env=os.environ | environment(0, 0),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 7
    assert output.startswith(f"{process.pid} {{")
    assert output.endswith("['--x']\n")
    assert errors == f"tf-rdmabatch: chief:0 at n1:{10000 + 64 * (1234 % 320)}\n"


def test_what_would_run_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(1, 0).items():
        monkeypatch.setenv(name, value)
    arguments = ["--port", "5000", "--start-timeout", "60", "--print", "train.py"]
    assert cli.main(["launch", *arguments]) == 0
    output = capsys.readouterr().out
    assert "# ps:0 on n1" in output
    assert "-m tf_rdmabatch serve --linger 5.0 --start-timeout 60.0" in output


def test_a_job_of_one_process_among_several(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in environment(1, 0).items():
        monkeypatch.setenv(name, value)
    script = tmp_path / "script.py"
    script.touch()
    assert cli.main(["launch", "--under", "nothing", "--print", str(script)]) == 0
    assert "# worker:1 on 127.0.0.1" in capsys.readouterr().out


def test_a_script_that_does_not_exist(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(0, 0).items():
        monkeypatch.setenv(name, value)
    assert cli.main(["launch", "no such script.py"]) == 2
    assert "no such script" in capsys.readouterr().err
