from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tf_rdmabatch
from tf_rdmabatch import cli


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: command"),
        (["frobnicate"], "invalid choice: 'frobnicate'"),
        (["info", "--yaml"], "unrecognized arguments: --yaml"),
        (["info", "extra"], "unrecognized arguments: extra"),
    ],
)
def test_wrong_input_is_one_error_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert message in errors
    assert errors.count("error:") == 1
    assert "Traceback" not in errors


def test_help_names_each_command_and_imports_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--help"])
    assert stopped.value.code == 0
    output = capsys.readouterr().out
    assert "info" in output
    assert "bench" in output


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"tf-rdmabatch {tf_rdmabatch.__version__}\n"


def test_a_command_that_fails_says_why_and_gives_its_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "failing_command.py").write_text(
        "from tf_rdmabatch.cli import CommandError\n"
        "def run(options):\n"
        "    raise CommandError('no such transport: carrier pigeon', status=2)\n"
        "def configure(parser):\n"
        "    parser.set_defaults(run=run)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(cli._COMMANDS, "fail", ("failing_command", "fail"))
    assert cli.main(["fail"]) == 2
    output, errors = capsys.readouterr()
    assert (output, errors) == ("", "tf-rdmabatch: error: no such transport: carrier pigeon\n")


def test_an_engine_that_does_not_load_is_one_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "broken_command.py").write_text("raise ImportError('librdmabatch.so: not found')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(cli._COMMANDS, "broken", ("broken_command", "broken"))
    assert cli.main(["broken"]) == 1
    errors = capsys.readouterr().err
    assert errors == (
        "tf-rdmabatch: error: the engine cannot be loaded: librdmabatch.so: not found\n"
    )


def test_a_closed_pipe_is_not_a_traceback() -> None:
    command = f"{sys.executable} -m tf_rdmabatch info --json | head -c 1"
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "{"
    assert done.stderr == ""


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tf_rdmabatch", "--version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == f"tf-rdmabatch {tf_rdmabatch.__version__}\n"


def test_importing_the_package_is_cheap() -> None:
    program = (
        "import sys; before = set(sys.modules); import tf_rdmabatch; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.split())
    assert "tf_rdmabatch" in loaded
    assert not loaded & {"numpy", "rich", "tf_rdmabatch._core", "tf_rdmabatch.engine"}


def test_an_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'frobnicate'"):
        _ = tf_rdmabatch.frobnicate
    assert "engine" in dir(tf_rdmabatch)
