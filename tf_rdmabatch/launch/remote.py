"""What a shell on another host is given to run a task."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tf_rdmabatch.launch.cluster import Task


def script_for(task: Task, command: Sequence[str], directory: str) -> str:
    """Return the line that a person types to run a task; the token is in the environment."""
    config = shlex.quote(task.tf_config)
    return f"cd {shlex.quote(directory)} && TF_CONFIG={config} {shlex.join(command)}"


def remote_command(task: Task, command: Sequence[str], directory: str) -> str:
    """Return a shell command that reads the token from its input and runs a task.

    The token is in no argument, which other users of the host could read. The task is ended when
    the input ends: it does so with the connection, whatever becomes of the process that made it.
    """
    return (
        "IFS= read -r TF_RDMABATCH_TOKEN && export TF_RDMABATCH_TOKEN || exit 1; "
        f"export TF_CONFIG={shlex.quote(task.tf_config)}; cd {shlex.quote(directory)} || exit 1; "
        # A shell gives what runs in the background no input, unless it has another number.
        f"exec 3<&0; {shlex.join(command)} </dev/null 3<&- & task=$!; "
        "{ cat <&3; kill $task; } >/dev/null 2>&1 & "
        "wait $task"
    )
