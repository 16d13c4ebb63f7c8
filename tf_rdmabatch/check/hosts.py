"""A check of hosts that ssh reaches: a task on each, of which the first that can be used leads."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tf_rdmabatch
from tf_rdmabatch.check.cluster import Task
from tf_rdmabatch.check.result import Result, from_json
from tf_rdmabatch.cli import CommandError
from tf_rdmabatch.launch.hostfile import Host
from tf_rdmabatch.launch.ssh import Access

# For ssh, which gives up after 10 itself, and for Python to start.
_LOGIN_SECONDS = 30.0
# For tasks that have nothing more to do.
_END_SECONDS = 5.0


def check_hosts(
    hosts: Sequence[Host],
    access: Access,
    port: int,
    arguments: Sequence[str],
    longest: float,
) -> Result:
    """Check hosts, and return what was found.

    Parameters
    ----------
    hosts
        At least two.
    access
        How they are reached.
    port
        At which the task of each listens.
    arguments
        Of ``tf-rdmabatch check``, for all tasks.
    longest
        Seconds that the leading task may take.

    Raises
    ------
    CommandError
        Fewer than two can be used, or the check itself failed.
    """
    if len(hosts) < 2:
        raise CommandError("a check needs at least two hosts", status=2)
    with ThreadPoolExecutor(len(hosts)) as pool:
        complaints = list(pool.map(lambda host: _complaint(host, access), hosts))
    refused = {h.name: why for h, why in zip(hosts, complaints, strict=True) if why}
    usable = [host for host in hosts if host.name not in refused]
    if len(usable) < 2:
        lines = "".join(f"\n  {name}: {why}" for name, why in refused.items())
        raise CommandError(f"a check needs at least two hosts that can be used:{lines}")
    tasks = {host.name: Task(host.name, _address(host, port)) for host in hosts}
    own = [tasks[host.name] for host in usable]
    result, failed = _run(usable, own, access, arguments, longest)
    for name, why in (failed | refused).items():
        result.missing[name] = ("start", why)
    result.tasks = (*own, *(tasks[name] for name in refused))
    return result


def _address(host: Host, port: int) -> str:
    return f"[{host.address}]:{port}" if ":" in host.address else f"{host.address}:{port}"


def _complaint(host: Host, access: Access) -> str:
    """Return why this package cannot be run on a host; nothing where it can."""
    command = access.command(host, ["-m", "tf_rdmabatch", "--version"])
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LOGIN_SECONDS,
            check=False,
        )
    except OSError as error:
        raise CommandError(f"{command[0]} cannot be run: {error}") from error
    except subprocess.TimeoutExpired:
        return f"it did not answer in {_LOGIN_SECONDS:.0f} s"
    last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
    if done.returncode != 0:
        return access.why_failed(host, done.returncode, last)
    here = tf_rdmabatch.__version__
    # Among what a login shell's start-up files print.
    version = re.findall(r"^tf-rdmabatch (\S+)$", done.stdout, re.MULTILINE)
    if version != [here]:
        there = " ".join(version) or "nothing that says its version"
        return f"tf_rdmabatch is {there} there and {here} here: install the same"
    return ""


class _Process:
    """A task on a host; it ends with its input."""

    def __init__(self, command: Sequence[str], token: str) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  Closed by close.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=self._errors,
            # A signal from the terminal is for this process alone.
            start_new_session=True,
        )
        assert self.popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.write(token.encode() + b"\n")
            self.popen.stdin.flush()

    @property
    def output(self) -> str:
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    @property
    def last_error(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("tf-rdmabatch: error: ") if lines else ""

    def close(self, deadline: float) -> None:
        assert self.popen.stdin is not None
        with contextlib.suppress(OSError):
            self.popen.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(max(0.0, deadline - time.monotonic()))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        self._output.close()
        self._errors.close()


@contextlib.contextmanager
def _processes(commands: Sequence[Sequence[str]]) -> Iterator[list[_Process]]:
    token = os.environ.get("TF_RDMABATCH_TOKEN") or secrets.token_hex(16)
    processes: list[_Process] = []
    try:
        for command in commands:
            processes.append(_Process(command, token))
        yield processes
    finally:
        deadline = time.monotonic() + _END_SECONDS
        for process in processes:
            process.close(deadline)


def _run(
    hosts: Sequence[Host],
    tasks: Sequence[Task],
    access: Access,
    arguments: Sequence[str],
    longest: float,
) -> tuple[Result, dict[str, str]]:
    """Run a task on each host; return the result, and what those that failed said at last."""
    check = ["-m", "tf_rdmabatch", "check", *arguments, "--json", "-", "--token-from-input"]
    check += ["--cluster", ",".join(task.address for task in tasks)]
    check += ["--names", ",".join(task.name for task in tasks)]
    commands = [access.command(host, [*check, "--task", str(i)]) for i, host in enumerate(hosts)]
    with _processes(commands) as processes:
        lead = processes[0]
        bound = _LOGIN_SECONDS + longest
        try:
            lead.popen.wait(bound)
            result = from_json(_object_in(lead.output))
        except subprocess.TimeoutExpired as error:
            raise CommandError(
                f"{tasks[0].name}, which leads the check, was not done in {bound:.0f} s: its "
                "process is stopped or its host overloaded"
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            said = lead.last_error or f"status {lead.popen.returncode}"
            raise CommandError(f"{tasks[0].name}, which leads the check: {said}") from error
        deadline = time.monotonic() + _END_SECONDS
        failed = {}
        for task, process in zip(tasks[1:], processes[1:], strict=True):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.popen.wait(max(0.0, deadline - time.monotonic()))
            if process.popen.returncode and task.name in result.missing and process.last_error:
                failed[task.name] = process.last_error
    return result, failed


def _object_in(output: str) -> dict[str, Any]:
    """Return the JSON object that begins with the first line of a brace alone.

    A login shell's start-up files may print lines before it, and others after it.
    """
    lines = output.splitlines()
    text = "\n".join(lines[lines.index("{") :])
    found: dict[str, Any] = json.JSONDecoder().raw_decode(text)[0]
    return found
