"""The launcher's program on another host: runs the tasks there and tells what they write.

It is run by ``ssh``, is told everything by its input, so that no secret stands on a command line,
and ends its tasks when the input ends, whatever became of the launcher.
"""

from __future__ import annotations

import json
import os
import select
import selectors
import signal
import sys
import time
from collections.abc import Mapping
from typing import IO, Any

from tf_rdmabatch.cli import CommandError
from tf_rdmabatch.launch.checks import describe_host, problems_of, resolve
from tf_rdmabatch.launch.messages import Lines, encode, to_text
from tf_rdmabatch.launch.processes import GRACE_SECONDS, Process

# The launcher says something every few seconds; after so long it is gone.
SILENCE_SECONDS = 60.0


class _Remote:
    """Serves one launcher."""

    def __init__(self) -> None:
        self._processes: list[Process] = []
        # With open pipes or not yet reported.
        self._running: list[Process] = []
        self._lines = Lines()
        self._unsent = bytearray()
        self._heard = time.monotonic()
        self._over = False
        # The input, and with it the launcher.
        self._ended = False
        self._request: Mapping[str, Any] | None = None
        self._selector = selectors.DefaultSelector()
        self._selector.register(0, selectors.EVENT_READ)
        # A launcher that does not read may not keep this program from noticing that it is gone.
        os.set_blocking(1, False)

    def serve(self) -> None:
        """Return when the launcher is gone or has said so, or all tasks have ended."""
        self._say({"hello": describe_host()})
        try:
            while not self._over:
                self._step(0.2)
        finally:
            self._end_all()
            while self._unsent and not self._is_gone():
                self._step(0.2)

    def stop(self, *_: object) -> None:
        """End soon; for signals."""
        self._over = True

    def _step(self, timeout: float) -> None:
        if self._unsent:
            # Until it is, tasks wait with what they write.
            self._await_launcher(timeout)
        else:
            for key, _ in self._selector.select(timeout):
                if key.data is None:
                    self._listen()
                else:
                    self._pass_on(key.data, key.fileobj)
        for process in [one for one in self._running if one.status is not None]:
            self._report(process)
        if self._is_gone():
            self._over = True

    def _is_gone(self) -> bool:
        """Return whether the launcher has ended, or has said nothing for long."""
        return self._ended or time.monotonic() - self._heard > SILENCE_SECONDS

    def _await_launcher(self, timeout: float) -> None:
        readable, writable, _ = select.select([] if self._ended else [0], [1], [], timeout)
        if readable:
            self._listen()
        if writable:
            self._send()

    def _listen(self) -> None:
        chunk = os.read(0, 65536)
        self._heard = time.monotonic()
        messages = self._lines.take(chunk)[0]
        for message in messages:
            if "request" in message:
                self._check(message["request"])
            elif "start" in message:
                self._start()
        if not chunk or any("end" in message for message in messages):
            self._over = True
            if not chunk:
                self._ended = True
                self._selector.unregister(0)

    def _check(self, request: Mapping[str, Any]) -> None:
        self._request = request
        numbers, unknown = resolve(request["addresses"])
        problems = problems_of(request)
        problems += [f"the name {name} is not known here" for name in unknown]
        self._say({"checked": {"problems": problems, "addresses": numbers}})

    def _start(self) -> None:
        assert self._request is not None
        for task in self._request["tasks"]:
            name = f"{task['job']}:{task['index']}"
            role = {"type": task["job"], "index": task["index"]}
            environment = {
                **self._request["environment"],
                "TF_CONFIG": json.dumps({"cluster": self._request["cluster"], "task": role}),
                "TF_RDMABATCH_TOKEN": self._request["token"],
            }
            command = [sys.executable, *task["arguments"]]
            try:
                process = Process(name, command, environment, split=task["job"] == "chief")
            except CommandError as error:
                self._say({"failed": str(error)})
                self._over = True
                return
            self._processes.append(process)
            self._running.append(process)
            for file in process.files:
                self._selector.register(file, selectors.EVENT_READ, process)

    def _pass_on(self, process: Process, file: Any) -> None:
        chunk = os.read(file.fileno(), 65536)
        if chunk:
            errors = process.is_errors(file)
            self._say({"task": process.name, "errors": errors, "text": to_text(chunk)})
        else:
            self._selector.unregister(file)

    def _report(self, process: Process) -> None:
        """Say how a task ended, after all that it wrote."""
        for file in process.files:
            # A pipe holds no more; what it started may write on for ever.
            for _ in range(16):
                if self._is_readable(file):
                    self._pass_on(process, file)
        self._running.remove(process)
        self._say({"task": process.name, "status": process.status})
        if not self._running:
            self._over = True

    def _is_readable(self, file: IO[bytes]) -> bool:
        if file not in self._selector.get_map():
            return False
        return any(key.fileobj is file for key, _ in self._selector.select(0))

    def _end_all(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self._running:
                process.end(number)
            until = time.monotonic() + GRACE_SECONDS
            while time.monotonic() < until and self._running:
                self._step(0.05)
        for process in self._processes:
            # Whatever a task left behind in its session.
            process.end(signal.SIGKILL)

    def _say(self, message: dict[str, Any]) -> None:
        self._unsent += encode(message)
        self._send()

    def _send(self) -> None:
        """Write as much as the launcher takes now."""
        try:
            del self._unsent[: os.write(1, self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            # It is gone, and has closed the input too.
            self._unsent.clear()


def main() -> None:
    """Serve the launcher at the other end of input and output."""
    remote = _Remote()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, remote.stop)
    remote.serve()


if __name__ == "__main__":
    main()
