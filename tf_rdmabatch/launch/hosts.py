"""A job over several hosts: checked on all of them before it starts on one."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence

from tf_rdmabatch.cli import CommandError
from tf_rdmabatch.launch import checks
from tf_rdmabatch.launch.cluster import Task, lay_out, places_of
from tf_rdmabatch.launch.hostfile import Host
from tf_rdmabatch.launch.job import Job
from tf_rdmabatch.launch.output import RunningTask
from tf_rdmabatch.launch.processes import GRACE_SECONDS
from tf_rdmabatch.launch.ssh import Access, Connection

# For all hosts together to be reached and checked.
START_SECONDS = 60.0
# Between words to the programs there, which end after a minute without one.
ALIVE_SECONDS = 5.0


def tasks_of(hosts: Sequence[Host], first_port: int) -> dict[str, list[Task]]:
    """Return the tasks of each host, by its name."""
    places = [
        (host.name, place)
        for host in hosts
        for place in places_of(host.workers, host.ps, host.address)
        if host.chief or place[0] != "chief"
    ]
    tasks: dict[str, list[Task]] = {host.name: [] for host in hosts}
    ports = range(first_port, first_port + len(places))
    for (name, _), task in zip(places, lay_out([p for _, p in places], ports), strict=True):
        tasks[name].append(task)
    return {name: own for name, own in tasks.items() if own}


class HostsJob(Job):
    """A job over hosts.

    Parameters
    ----------
    hosts, tasks
        The hosts, and the tasks of each that has some.
    access
        How they are reached.
    arguments
        Of Python, for each task by its name.
    script
        What the chief runs.
    environment, token
        For all tasks. The token reaches a host when all of them have the right program.
    """

    # The program there forces an end after that time, and tells of it.
    grace = GRACE_SECONDS + 3

    def __init__(
        self,
        hosts: Sequence[Host],
        tasks: Mapping[str, Sequence[Task]],
        access: Access,
        arguments: Mapping[str, Sequence[str]],
        script: str,
        environment: Mapping[str, str],
        token: str,
    ) -> None:
        super().__init__()
        self._hosts = [host for host in hosts if host.name in tasks]
        self._tasks = tasks
        self._access = access
        self._arguments = arguments
        self._script = script
        self._environment = environment
        self._token = token
        self._connections: list[Connection] = []
        self._deadline = time.monotonic() + START_SECONDS
        self._over = threading.Event()

    def run(self) -> int:
        """Run the job, as `Job.run` says."""
        # In a thread of its own: what passes the output on stops with it, as a pager has it.
        threading.Thread(target=self._keep_alive, name="keep-alive", daemon=True).start()
        try:
            return super().run()
        finally:
            self._over.set()

    def _keep_alive(self) -> None:
        while not self._over.wait(ALIVE_SECONDS):
            for connection in list(self._connections):
                connection.say({"alive": True})

    def start(self) -> None:
        """Reach all hosts, check them, and start the tasks.

        Raises
        ------
        CommandError
            A host cannot be used; nothing has been started anywhere.
        """
        for host in self._hosts:
            running = [RunningTask(task) for task in self._tasks[host.name]]
            connection = Connection(host, self._access, running)
            self._connections.append(connection)
            self.add(connection)
        if not self._await("hello", "did not answer"):
            return
        hosts = {c.host.name: c.hello or {} for c in self._connections}
        _refuse(checks.compare(hosts))
        for warning in checks.compare_clocks(hosts):
            print(f"tf-rdmabatch: {warning}", file=sys.stderr, flush=True)
        for connection in self._connections:
            connection.say({"request": self._request(connection)})
        if not self._await("checked", "did not finish its checks"):
            return
        self._require_checked()
        for connection in self._connections:
            connection.say({"start": True})

    def _await(self, answer: str, complaint: str) -> bool:
        """Return whether an answer of all hosts has come; it has not when interrupted."""
        while self.interrupted is None:
            self.pass_on(0.1)
            missing = [c for c in self._connections if getattr(c, answer) is None]
            # All are read to their end, so that one error names all hosts that fail.
            waited_for = [c for c in missing if c.poll()]
            if waited_for and time.monotonic() < self._deadline:
                continue
            # What ssh wrote last.
            self.pass_on(0.1)
            _refuse(
                f"{c.host.name}: {c.problem or f'it {complaint} within {START_SECONDS:.0f} s'}"
                for c in missing
            )
            return True
        return False

    def _request(self, connection: Connection) -> dict[str, object]:
        own = self._tasks[connection.host.name]
        return {
            "token": self._token,
            "environment": dict(self._environment),
            "directory": self._access.directory,
            "script": self._script if any(task.job == "chief" for task in own) else None,
            "cluster": json.loads(own[0].tf_config)["cluster"],
            "addresses": list(dict.fromkeys(host.address for host in self._hosts)),
            "tasks": [
                {
                    "job": task.job,
                    "index": task.index,
                    "host": task.host,
                    "port": task.port,
                    "arguments": list(self._arguments[task.name]),
                }
                for task in own
            ],
        }

    def _require_checked(self) -> None:
        checked = {c.host.name: c.checked or {} for c in self._connections}
        found = [f"{name}: {one}" for name, answer in checked.items() for one in answer["problems"]]
        addresses = {name: answer["addresses"] for name, answer in checked.items()}
        _refuse(found or checks.compare_addresses(addresses))


def _refuse(problems: Iterable[str]) -> None:
    """Raise one error for all problems, if there are any."""
    found = list(problems)
    if found:
        lines = f" {found[0]}" if len(found) == 1 else "".join(f"\n  {line}" for line in found)
        raise CommandError(f"the job was not started:{lines}")
