"""What a program asks of its connections: the best transport, or a certain one."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tf_rdmabatch import _core
from tf_rdmabatch.errors import InvalidArgument

# "ps:1", "/job:ps/task:1", and both without the task.
_TASK = re.compile(r"(?:/job:)?([^/:,=*]+)(?:(?:/task:|:)(\d+|\*))?")

# What `transport` arguments take: a name or "auto", or one of these by task.
Transport = str | Mapping[str, str] | None


def as_rules(transport: Transport) -> str:
    """Return the text that says the same as a `transport` argument; it was checked.

    Parameters
    ----------
    transport
        A transport's name, or ``"auto"``; or a mapping from tasks to these, whose keys are a task
        (``"ps:1"`` or ``"/job:ps/task:1"``), a job (``"worker"``) or ``"*"``, all others. None, or
        nothing, is what the environment's TF_RDMABATCH_TRANSPORT says, and ``"auto"`` without it.

    Raises
    ------
    InvalidArgument
        It is none of these, which is a `ValueError`.
    """
    if not transport:
        return ""
    if isinstance(transport, Mapping):
        text = ",".join(f"{task}={name}" for task, name in transport.items())
    elif isinstance(transport, str):
        text = transport
    else:
        raise InvalidArgument(
            f"transport is a name, such as 'auto', or a mapping from tasks to names, not "
            f"{transport!r}"
        )
    _core.check_transport(text)
    return text


def tasks_of(rules: str) -> dict[str, tuple[str, int | None]]:
    """Return the tasks and jobs that rules name.

    Parameters
    ----------
    rules
        Text that was checked.

    Returns
    -------
    dict
        By the text that names it a job, and the number of its task or None for all.

    Raises
    ------
    InvalidArgument
        A text names neither.
    """
    named = {}
    for part in rules.split(","):
        key, equal, _ = part.partition("=")
        if not equal or key == "*":
            continue
        match = _TASK.fullmatch(key)
        if match is None:
            raise InvalidArgument(
                f"{key!r} is no task of a transport's rule: write ps:1, ps or * (all others)"
            )
        job, index = match.groups()
        named[key] = job, None if index in (None, "*") else int(index)
    return named
