"""Tasks that are processes of this host, and the end of them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO

from tf_rdmabatch.cli import CommandError

# After an end was asked for; then it is forced.
GRACE_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A process in a session of its own, which dies with the one that started it.

    Parameters
    ----------
    name
        What errors call it.
    command, environment
        What it is; the environment is added to this process's.
    terminal
        Let it have this process's input and output: only its errors are read.
    split
        Read its errors apart from its output.

    Raises
    ------
    CommandError
        It cannot be started.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        terminal: bool = False,
        split: bool = False,
    ) -> None:
        self.name = name
        try:
            self._popen: subprocess.Popen[bytes] = subprocess.Popen(
                command,
                env={**os.environ, **environment},
                stdin=None if terminal else subprocess.DEVNULL,
                stdout=None if terminal else subprocess.PIPE,
                stderr=subprocess.PIPE if terminal or split else subprocess.STDOUT,
                # A signal from the terminal reaches its parent alone, which ends all in order.
                start_new_session=True,
                # With no other thread here, nothing can be locked in the child.
                preexec_fn=_die_with_parent,  # noqa: PLW1509
            )
        except OSError as error:
            raise CommandError(f"{name} cannot be started: {error}") from error

    @property
    def files(self) -> list[IO[bytes]]:
        """What can be read of it."""
        return [file for file in (self._popen.stdout, self._popen.stderr) if file is not None]

    def is_errors(self, file: IO[bytes]) -> bool:
        """Return whether one of `files` has its errors alone."""
        return file is self._popen.stderr

    def end(self, number: signal.Signals) -> None:
        """Send a signal to it and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, number)

    @property
    def status(self) -> int | None:
        """Its exit status as a shell gives it; None while it runs."""
        status = self._popen.poll()
        return 128 - status if status is not None and status < 0 else status
