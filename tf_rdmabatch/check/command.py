"""The command line of ``tf-rdmabatch check``."""

from __future__ import annotations

import argparse
import json
import logging
import os
import shlex
import sys
import threading
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from tf_rdmabatch import _logs
from tf_rdmabatch.addresses import is_loopback, split_host
from tf_rdmabatch.bench.report import require_matplotlib
from tf_rdmabatch.check import lead
from tf_rdmabatch.check.agent import Agent
from tf_rdmabatch.check.cluster import Role, from_addresses, from_environment
from tf_rdmabatch.check.findings import notes, problems
from tf_rdmabatch.check.hosts import check_hosts
from tf_rdmabatch.check.plot import write_plot
from tf_rdmabatch.check.reach import ReachError, explain, reach
from tf_rdmabatch.check.report import render
from tf_rdmabatch.check.result import Result
from tf_rdmabatch.cli import CommandError
from tf_rdmabatch.engine import Engine, EngineError
from tf_rdmabatch.launch import FIRST_PORT
from tf_rdmabatch.launch.hostfile import read_hosts
from tf_rdmabatch.launch.ssh import Access, add_arguments


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``tf-rdmabatch check``."""
    parser.description = (
        "Says which hosts of a job reach each other, over which transport and why that, and how "
        "fast; and what is wrong. Give it the hosts, or run it in every task of a job in place of "
        "the program: TF_CONFIG, Slurm or Kubernetes says which task it is, and the chief shows "
        "the result. Status 0: all reach each other; 1: something is wrong."
    )
    parser.add_argument(
        "--hosts",
        metavar="FILE",
        help="a hostfile, or names with commas, as of `tf-rdmabatch launch`: starts a task on each",
    )
    add_arguments(parser)
    parser.add_argument(
        "--port",
        type=int,
        default=FIRST_PORT,
        help="with --hosts: at which each listens; default: %(default)s",
    )
    parser.add_argument(
        "--cluster",
        metavar="HOST:PORT,...",
        help="in place of TF_CONFIG: the tasks, the same everywhere; the first shows the result",
    )
    parser.add_argument(
        "--task", type=int, metavar="N", help="with --cluster: which of them this is, from 0"
    )
    for job in ("workers", "ps"):
        parser.add_argument(
            f"--{job}", type=int, help="under Slurm and on Kubernetes, as of `tf-rdmabatch launch`"
        )
    parser.add_argument(
        "--transport",
        default=os.environ.get("TF_RDMABATCH_TRANSPORT", "auto"),
        metavar="RULES",
        help="what the job is to use, such as tcp or ps:1=tcp,*=auto; default: "
        "TF_RDMABATCH_TRANSPORT, or auto",
    )
    parser.add_argument(
        "--ports",
        default=os.environ.get("TF_RDMABATCH_PORTS", ""),
        metavar="RANGE",
        help="where transports may listen, such as 20000-20100; default: TF_RDMABATCH_PORTS, or "
        "any free ones",
    )
    parser.add_argument(
        "--wait",
        type=_seconds,
        default=30.0,
        metavar="SECONDS",
        help="for all tasks to come up; default: %(default)s",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=5.0,
        metavar="SECONDS",
        help="for a connection; default: %(default)s",
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=0.2,
        help="for each figure of each pair; default: %(default)s",
    )
    parser.add_argument(
        "--json", metavar="FILE", help="write all that was found; - prints it instead of tables"
    )
    # What --hosts has tasks told.
    parser.add_argument("--names", help=argparse.SUPPRESS)
    parser.add_argument("--token-from-input", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw heat maps")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Check, and return the exit status."""
    if options.plot is not None:
        require_matplotlib()
    if "TF_RDMABATCH_LOG_LEVEL" not in os.environ:
        # The connections that are tried break, one after the other.
        _logs.LOGGER.setLevel(logging.CRITICAL)
    if options.hosts is not None:
        return show(_over_hosts(options), options)
    if options.token_from_input:
        _take_token()
    role = _role(options)
    with Agent(role.own, None, options.transport, options.ports) as agent:
        _warn_of_loopback(role, agent)
        if role.index == 0:
            return show(_lead(role, options), options)
        _follow(role, agent, options)
    return 0


def _role(options: argparse.Namespace) -> Role:
    if (options.cluster is None) != (options.task is None):
        raise CommandError("--cluster and --task belong together", status=2)
    if options.cluster is None:
        return from_environment(options.workers, options.ps)
    names = None if options.names is None else options.names.split(",")
    return from_addresses(options.cluster.split(","), names, options.task)


def _over_hosts(options: argparse.Namespace) -> Result:
    if options.cluster is not None:
        raise CommandError("--hosts starts the tasks; --cluster is for one of them", status=2)
    arguments = ["--transport", options.transport, "--ports", options.ports]
    for name in ("wait", "timeout", "seconds"):
        arguments += [f"--{name}", str(getattr(options, name))]
    access = Access(shlex.split(options.ssh), options.python, str(Path.cwd()))
    hosts = read_hosts(options.hosts)
    longest = lead.longest(len(hosts), options.wait, options.timeout, options.seconds)
    return check_hosts(hosts, access, options.port, arguments, longest)


def _take_token() -> None:
    """Read the token, and end this process when the input ends, with the connection."""
    os.environ["TF_RDMABATCH_TOKEN"] = sys.stdin.readline().strip()

    def follow() -> None:
        while sys.stdin.readline():
            pass
        os._exit(1)

    threading.Thread(target=follow, name="input", daemon=True).start()


def show(result: Result, options: argparse.Namespace) -> int:
    """Show a check as the options say, and return the exit status."""
    if options.json == "-":
        print(_as_json(result))
    else:
        render(result, Console(markup=False, highlight=False))
        if options.json is not None:
            _write_json(result, Path(options.json))
    if options.plot is not None:
        write_plot(result, options.plot)
    return 1 if problems(result) else 0


def _as_json(result: Result) -> str:
    found = {"problems": problems(result), "notes": notes(result)}
    return json.dumps(result.to_json() | found, indent=1)


def _write_json(result: Result, path: Path) -> None:
    try:
        path.write_text(_as_json(result) + "\n")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from error


def _lead(role: Role, options: argparse.Namespace) -> Result:
    errors = Console(stderr=True)
    with (
        Engine(None, role.own.name, transport=options.transport, ports=options.ports) as engine,
        Progress(console=errors, transient=True, disable=not errors.is_terminal) as bar,
    ):
        shown = bar.add_task("", total=1.0)
        return lead.run(
            role.tasks,
            engine,
            wait=options.wait,
            timeout=options.timeout,
            seconds=options.seconds,
            progress=lambda what, share: bar.update(shown, description=what, completed=share),
        )


def _follow(role: Role, agent: Agent, options: argparse.Namespace) -> None:
    leader = role.tasks[0]
    # It may come late, and then calls the tasks that are up at once.
    if agent.wait(options.wait + 3 * options.timeout):
        print(f"{role.own.name} was checked; {leader.name} shows the result")
        return
    message = f"{leader.name} at {leader.address} asked nothing of {role.own.name}"
    try:
        with Engine(None, role.own.name, ports=options.ports) as engine:
            reach(engine, leader.address, options.timeout).close()
    except ReachError as error:
        meaning = explain(error.kind, leader.address, options.timeout)
        raise CommandError(f"{message}, nor can it be reached from here: {meaning}") from error
    except EngineError as error:
        raise CommandError(f"{message}: {error}") from error
    raise CommandError(
        f"{message}, though it can be reached from here. Does something, such as a firewall, keep "
        f"it from reaching {role.own.address}?"
    )


def _warn_of_loopback(role: Role, agent: Agent) -> None:
    hosts = {split_host(task.address)[0] for task in role.tasks}
    if len(hosts) > 1 and is_loopback(split_host(agent.listens)[0]):
        print(
            f"{role.own.name} listens at {agent.listens}, which no other host can reach: that is "
            "what its name means on this host. Correct /etc/hosts here",
            file=sys.stderr,
        )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return value
