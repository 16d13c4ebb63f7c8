"""``tf-rdmabatch launch``: a whole cluster for one script, on this host or over several."""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from tf_rdmabatch.cli import CommandError
from tf_rdmabatch.launch import role
from tf_rdmabatch.launch.cluster import Task, free_ports, lay_out, places_of
from tf_rdmabatch.launch.hostfile import MAX_TASKS, read_hosts
from tf_rdmabatch.launch.hosts import HostsJob, tasks_of
from tf_rdmabatch.launch.job import LocalJob
from tf_rdmabatch.launch.ssh import Access, add_arguments

FIRST_PORT = 29400
# Of this process's environment, what tasks on other hosts get as well; TF_CONFIG and
# TF_RDMABATCH_TOKEN they get anyhow.
PASSED_ON = ("TF_", "KERAS_", "XLA_", "CUDA_")
_EPILOG = """
The script runs as the chief, with the terminal to itself where that is this host; it needs no
knowledge of roles. Workers and parameter servers run `python -m tf_rdmabatch serve`; their lines
are prefixed by the task. When the script ends, so does everything else. When a task fails,
everything is ended, its last lines are shown and its exit status is that of the command (128 + n
for signal n). In a step of Slurm, or a pod of an Indexed Job, the command becomes the one task
that the environment tells. docs/clusters.md describes all of these.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = _EPILOG
    parser.add_argument("--workers", type=_count, help="default: 2; all that are left under Slurm")
    parser.add_argument("--ps", type=_count, help="parameter servers; default: 1")
    parser.add_argument(
        "--port",
        type=_port,
        help=f"the first task's port; others have the next; default: {FIRST_PORT} over hosts and "
        "on Kubernetes, reserved ones or some by the job's number under Slurm, free ones here",
    )
    hosts = parser.add_argument_group("over hosts")
    hosts.add_argument(
        "--hosts",
        metavar="FILE",
        help="a hostfile, of lines such as `node1 chief ps=1` and `node2 workers=2`; or names with "
        "commas, which tasks go round",
    )
    add_arguments(hosts)
    hosts.add_argument(
        "--directory", metavar="PATH", help="to run in there, from / on; default: the same as here"
    )
    hosts.add_argument(
        "--env",
        action="append",
        default=[],
        type=_variable,
        metavar="NAME[=VALUE]",
        help="set a variable there; those that begin with "
        f"{', '.join(PASSED_ON)} are set as they are here",
    )
    cluster = parser.add_argument_group("under Slurm and on Kubernetes")
    cluster.add_argument(
        "--under",
        choices=["auto", *role.MANAGERS, "nothing"],
        default="auto",
        help="who has started the tasks, if not this command; default: what the environment tells",
    )
    cluster.add_argument(
        "--start-timeout",
        type=_seconds,
        default=1800.0,
        metavar="SECONDS",
        help="workers and parameter servers end after so long without a chief; default: 1800",
    )
    parser.add_argument(
        "--print",
        action="store_true",
        help="print what would run where instead of running it",
    )
    parser.add_argument("script", help="a Python program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")
    parser.set_defaults(run=run, default_port=FIRST_PORT)


def run(options: argparse.Namespace) -> int:
    """Run the job, and return its exit status."""
    if options.hosts is not None:
        return _run_over_hosts(options)
    manager = role.manager_of(os.environ) if options.under == "auto" else options.under
    if manager in role.MANAGERS:
        task = role.find_task(manager, options, os.environ)
        if options.print:
            _print([(task, role.arguments_for(task, options))], sys.executable, str(Path.cwd()))
            return 0
        role.become(task, options)
    return _run_here(options)


def _run_here(options: argparse.Namespace) -> int:
    if not Path(options.script).is_file():
        raise CommandError(f"no such script: {options.script}", status=2)
    places = places_of(options.workers or 2, options.ps or 1, "127.0.0.1")
    first = options.port
    ports = range(first, first + len(places)) if first else free_ports(len(places))
    tasks = lay_out(places, ports)
    if options.print:
        _print([(t, _arguments(t, options)) for t in tasks], sys.executable, str(Path.cwd()))
        return 0
    job = LocalJob()
    token = _token()
    for task in tasks:
        command = [sys.executable, *_arguments(task, options)]
        job.plan(task, command, {"TF_CONFIG": task.tf_config, "TF_RDMABATCH_TOKEN": token})
    return job.run()


def _run_over_hosts(options: argparse.Namespace) -> int:
    hosts = read_hosts(options.hosts, options.workers, options.ps)
    directory = options.directory or str(Path.cwd())
    if not Path(directory).is_absolute():
        raise CommandError(
            f"--directory {directory} has to begin with /: it is the same on all hosts", status=2
        )
    first = options.port or FIRST_PORT
    if first + sum(host.workers + host.ps for host in hosts) >= 65535:
        raise CommandError(f"--port {first} leaves too few ports", status=2)
    tasks = tasks_of(hosts, first)
    arguments = {t.name: _arguments(t, options) for own in tasks.values() for t in own}
    if options.print:
        shown = [(t, arguments[t.name]) for own in tasks.values() for t in own]
        _print(shown, options.python, directory)
        return 0
    access = Access(shlex.split(options.ssh), options.python, directory)
    environment = {n: v for n, v in os.environ.items() if n.startswith(PASSED_ON)}
    environment.update(options.env)
    return HostsJob(hosts, tasks, access, arguments, options.script, environment, _token()).run()


def _arguments(task: Task, options: argparse.Namespace) -> list[str]:
    if task.job == "chief":
        return [options.script, *options.arguments]
    return ["-m", "tf_rdmabatch", "serve"]


def _token() -> str:
    return os.environ.get("TF_RDMABATCH_TOKEN") or secrets.token_hex(16)


def _print(tasks: Sequence[tuple[Task, Sequence[str]]], python: str, directory: str) -> None:
    """Print what a person types to start the tasks."""
    print("# Everywhere first, with a secret of yours: export TF_RDMABATCH_TOKEN=...")
    for task, arguments in tasks:
        print(f"# {task.name} on {task.host}")
        command = shlex.join([python, *arguments])
        print(f"cd {shlex.quote(directory)} && TF_CONFIG={shlex.quote(task.tf_config)} {command}")


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_TASKS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MAX_TASKS}")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or not 1024 <= int(text) <= 65000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1024 to 65000")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME or NAME=VALUE")
    if not equals and name not in os.environ:
        raise argparse.ArgumentTypeError(f"{name} is not set here")
    return name, value if equals else os.environ[name]
