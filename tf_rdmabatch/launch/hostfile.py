"""The hosts of a job: a file of lines such as ``node1 chief ps=1``, or a list of names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tf_rdmabatch.cli import CommandError

MAX_TASKS = 1024
WORDS = "chief, local, workers=N, ps=N, address=NAME_OR_IPV4 and ssh=[USER@]NAME"
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_LOGIN = re.compile(rf"([A-Za-z0-9_][A-Za-z0-9_.-]*@)?({_NAME.pattern}|[0-9A-Fa-f:]+)")


@dataclass(frozen=True)
class Host:
    """A host, and what runs on it.

    Attributes
    ----------
    name
        What it is called in output, and by ``ssh`` if nothing else is said.
    address
        Name or IPv4 address by which the tasks of all hosts reach those of this one.
    ssh
        What ``ssh`` is given to reach it; None where no ``ssh`` is needed, since it is this host.
    chief, workers, ps
        The tasks that run there.
    """

    name: str
    address: str
    ssh: str | None
    chief: bool = False
    workers: int = 0
    ps: int = 0


def read_hosts(argument: str, workers: int | None = None, ps: int | None = None) -> list[Host]:
    """Return the hosts that ``--hosts`` stands for, with each task of the job on one of them.

    Parameters
    ----------
    argument
        The path of a hostfile, or names with commas between them.
    workers, ps
        Go round the hosts where those have no tasks of their own, by default 2 and 1. The chief
        is on the first.

    Raises
    ------
    CommandError
        Status 2: there is no such file, it has a wrong line, or it leaves a task out.
    """
    path = Path(argument)
    if path.is_file():
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{argument} cannot be read: {error}", status=2) from error
        hosts = parse(text, argument)
    elif "/" in argument:
        raise CommandError(f"no such hostfile: {argument}", status=2)
    else:
        names = [name.strip() for name in argument.split(",")]
        if not all(_is_name(name) for name in names):
            raise CommandError(
                f"--hosts {argument!r} is neither a file nor names with commas, as in a,b",
                status=2,
            )
        hosts = [Host(name, name, name) for name in dict.fromkeys(names)]
    return _with_tasks(hosts, argument, workers, ps)


def parse(text: str, name: str) -> list[Host]:
    """Return the hosts of a hostfile's text; `name` is the file's, for errors.

    Raises
    ------
    CommandError
        Status 2: a line is wrong, or there is no host.
    """
    hosts: list[Host] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            host = _host(words)
            for known in dict.fromkeys((host.name, host.address)):
                if known in lines:
                    raise ValueError(
                        f"{known} is already in line {lines[known]}: a host has one line, with all "
                        "its tasks"
                    )
                lines[known] = number
        except ValueError as error:
            raise CommandError(f"{name}, line {number}: {error}", status=2) from error
        hosts.append(host)
    if not hosts:
        raise CommandError(f"{name} names no host", status=2)
    return hosts


def _host(words: Sequence[str]) -> Host:
    name, *rest = words
    if "@" in name:
        raise ValueError(f"{name!r} is not a host: write its name, and ssh={name}")
    if not _is_name(name):
        raise ValueError(f"{name!r} is not the name or IPv4 address of a host")
    values: dict[str, str] = {}
    for word in rest:
        key, equals, value = word.partition("=")
        if key in values:
            raise ValueError(f"{key} is given twice")
        if bool(equals) != (key in ("workers", "ps", "address", "ssh")) or (
            not equals and key not in ("chief", "local")
        ):
            raise ValueError(f"{word!r} is not known; after the host may stand {WORDS}")
        values[key] = value
    if "local" in values and "ssh" in values:
        raise ValueError("local is for the host that needs no ssh")
    address = values.get("address", name)
    if not _is_name(address):
        # TensorFlow's servers listen at no others.
        raise ValueError(f"address={address} is neither a name nor an IPv4 address")
    login = values.get("ssh", name)
    if not _LOGIN.fullmatch(login):
        raise ValueError(f"ssh={login} is not [USER@]NAME; all else belongs into ~/.ssh/config")
    return Host(
        name,
        address,
        None if "local" in values else login,
        "chief" in values,
        _count("workers", values),
        _count("ps", values),
    )


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def _count(key: str, values: dict[str, str]) -> int:
    text = values.get(key, "0")
    if not re.fullmatch("[0-9]{1,4}", text) or int(text) > MAX_TASKS:
        raise ValueError(f"{key}={text} is not a number from 0 to {MAX_TASKS}")
    return int(text)


def _with_tasks(hosts: list[Host], source: str, workers: int | None, ps: int | None) -> list[Host]:
    if not any(host.chief or host.workers or host.ps for host in hosts):
        return _dealt(hosts, 2 if workers is None else workers, 1 if ps is None else ps)
    if workers is not None or ps is not None:
        raise CommandError(
            f"{source} says how many tasks each host has: leave --workers and --ps out, or "
            "workers=, ps= and chief there",
            status=2,
        )
    chiefs = [host.name for host in hosts if host.chief]
    if len(chiefs) != 1:
        found = f"{' and '.join(chiefs)} both have it" if chiefs else "no line has it"
        raise CommandError(
            f"{source}: exactly one line needs the word chief, for the host that runs the script; "
            f"{found}",
            status=2,
        )
    for job, count in (
        ("workers", sum(host.workers for host in hosts)),
        ("ps", sum(host.ps for host in hosts)),
    ):
        if not 1 <= count <= MAX_TASKS:
            raise CommandError(
                f"{source}: {job}= adds up to {count}, and has to be from 1 to {MAX_TASKS}",
                status=2,
            )
    return hosts


def _dealt(hosts: list[Host], workers: int, ps: int) -> list[Host]:
    """Return the hosts with tasks that go round them."""

    def share(count: int, place: int) -> int:
        return count // len(hosts) + (place < count % len(hosts))

    return [
        Host(host.name, host.address, host.ssh, i == 0, share(workers, i), share(ps, i))
        for i, host in enumerate(hosts)
    ]
