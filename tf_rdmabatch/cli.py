"""The command ``tf-rdmabatch``.

A command is a module with ``configure(parser)``, which adds its arguments and sets the default
``run``, a function from the parsed arguments to the exit status. Only the module of the command
that is run gets imported. Exit statuses: 0 done, 1 failed, 2 wrong input.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import tf_rdmabatch

_COMMANDS = {
    "info": ("tf_rdmabatch.info", "what can run on this machine, and what is missing for the rest"),
    "bench": ("tf_rdmabatch.bench", "measure the engine, or training steps"),
    "serve": ("tf_rdmabatch.strategy.serve", "serve a worker or ps task of a TensorFlow job"),
    "check": ("tf_rdmabatch.check.command", "what connects the hosts of a job, and how fast"),
    "launch": ("tf_rdmabatch.launch", "run a script with workers and parameter servers"),
}


class CommandError(Exception):
    """A command cannot be carried out; the message is all that the user gets to see.

    Parameters
    ----------
    message
        One sentence: what is wrong, and what to do about it.
    status
        The exit status: 2 where the input is wrong, 1 where the input is right and it failed.
    """

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's) and return the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        parser = _parser(next((word for word in arguments if not word.startswith("-")), None))
        options = parser.parse_args(arguments)
        status: int = options.run(options)
        sys.stdout.flush()
    except CommandError as error:
        print(f"tf-rdmabatch: error: {error}", file=sys.stderr)
        return error.status
    except BrokenPipeError:
        # The reader of our output has seen enough; the interpreter's last flush must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return status


def _parser(selected: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tf-rdmabatch", description="Parameter traffic over a batched RDMA engine."
    )
    parser.add_argument(
        "--version", action="version", version=f"tf-rdmabatch {tf_rdmabatch.__version__}"
    )
    commands = parser.add_subparsers(metavar="command", required=True)
    for name, (module, summary) in _COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary.capitalize() + ".")
        if name == selected:
            _load(module).configure(command)
    return parser


def _load(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise CommandError(f"the engine cannot be loaded: {error}") from error
