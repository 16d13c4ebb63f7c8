"""``tf-rdmabatch launch``: a whole cluster for one script, on this host or over several."""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import sys
from pathlib import Path

from tf_rdmabatch.cli import CommandError
from tf_rdmabatch.launch.cluster import Task, free_ports, lay_out
from tf_rdmabatch.launch.processes import Job
from tf_rdmabatch.launch.remote import remote_command, script_for

MAX_TASKS = 1024
_EPILOG = """
The script runs as the chief, with the terminal to itself; it needs no knowledge of roles. Workers
and parameter servers run `python -m tf_rdmabatch serve`; their lines are prefixed by the task.
When the script ends, so does everything else. When a task fails, everything is ended, its last
lines are shown and its exit status is that of the command (128 + n for signal n).
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = _EPILOG
    parser.add_argument("--workers", type=_count, default=2, help="default: 2")
    parser.add_argument("--ps", type=_count, default=1, help="parameter servers; default: 1")
    parser.add_argument(
        "--hosts",
        type=_hosts,
        metavar="A,B",
        help="tasks go round these hosts, the script runs on the first; default: this host alone",
    )
    parser.add_argument(
        "--port",
        type=_port,
        default=29400,
        help="with --hosts: the first task's port; others have the next; default: 29400",
    )
    parser.add_argument(
        "--ssh",
        default="ssh -o BatchMode=yes",
        metavar="COMMAND",
        help="with --hosts: what runs a command on a host; default: %(default)s",
    )
    parser.add_argument(
        "--print",
        action="store_true",
        help="print what would run where instead of running it",
    )
    parser.add_argument("script", help="a Python program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the job, and return its exit status."""
    if options.hosts is None and not Path(options.script).is_file():
        raise CommandError(f"no such script: {options.script}", status=2)
    count = options.workers + options.ps + 1
    if options.hosts is None:
        tasks = lay_out(options.workers, options.ps, ["127.0.0.1"], free_ports(count))
    else:
        if options.port + count > 65536:
            raise CommandError(f"--port {options.port} leaves too few ports", status=2)
        ports = range(options.port, options.port + count)
        tasks = lay_out(options.workers, options.ps, options.hosts, ports)
    script = [sys.executable, options.script, *options.arguments]
    serve = [sys.executable, "-m", "tf_rdmabatch", "serve"]
    commands = {task.name: script if task.job == "chief" else serve for task in tasks}
    token = os.environ.get("TF_RDMABATCH_TOKEN") or secrets.token_hex(16)
    if options.print:
        _print(tasks, commands)
        return 0
    job = Job()
    for task in tasks:
        command = commands[task.name]
        if options.hosts is None:
            job.add(task, command, {"TF_CONFIG": task.tf_config, "TF_RDMABATCH_TOKEN": token})
        else:
            line = remote_command(task, command, str(Path.cwd()))
            job.add(task, [*shlex.split(options.ssh), task.host, line], {}, first_line=token)
    return job.run()


def _print(tasks: list[Task], commands: dict[str, list[str]]) -> None:
    print("# Everywhere first, with a secret of yours: export TF_RDMABATCH_TOKEN=...")
    for task in tasks:
        print(f"# {task.name} on {task.host}")
        print(script_for(task, commands[task.name], str(Path.cwd())))


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_TASKS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MAX_TASKS}")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or not 1024 <= int(text) <= 65000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1024 to 65000")
    return int(text)


def _hosts(text: str) -> list[str]:
    hosts = [host.strip() for host in text.split(",")]
    if not all(hosts) or any(host.startswith("-") or " " in host for host in hosts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of hosts, such as node1,node2")
    return list(dict.fromkeys(hosts))
