"""The task of a process: its engine, its connections, its counters."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tf_rdmabatch import _core
from tf_rdmabatch.ops._library import library

# Its threads may not outlive the libraries that they run in.
atexit.register(_core.stop_task)


def settled(result: Any) -> Any:
    """Return an op's result; in eager mode, once it is there.

    TensorFlow runs the eager ops of other processes asynchronously, and raises what goes wrong with
    whichever op comes next.
    """
    if tf.executing_eagerly():
        result.numpy()
    return result


def configure(
    name: str,
    token: str,
    listen: str = "127.0.0.1:0",
    *,
    transport: str = "auto",
    slots: int = 64,
    slot_bytes: int = 64 << 10,
    threads: int = 2,
    contributor: int = 0,
    confirm: str = "batch",
) -> Any:
    """Start the engine of the process that this op runs in, in place of the one before.

    Operations that wait in the one before end with `tf.errors.CancelledError`.

    Parameters
    ----------
    name
        Of the task: ``"worker:0"``. Errors of its peers name it.
    token
        The job's secret, the same in all its tasks.
    listen
        Address at which peers find it, ``"ip:port"``; port 0 takes a free one.
    transport
        ``"auto"``, ``"shm"`` or ``"verbs"``.
    slots, slot_bytes
        What each connection receives into: a multiple of 64 slots, and their size in bytes.
    threads
        Number of threads for what has to wait.
    contributor
        As which a worker pushes: from 0 to the parameters' contributors - 1.
    confirm
        ``"batch"``: chains of messages are confirmed together. ``"each"``: one by one, which is
        there to be compared with; the same on all tasks.

    Returns
    -------
    tf.Tensor
        String scalar: the address that it listens at, for `connect` on its peers.

    Raises
    ------
    tf.errors.UnavailableError
        The transport cannot run here; the message says why.
    tf.errors.InvalidArgumentError
        An option is wrong.
    tf.errors.AlreadyExistsError
        The port is in use.
    """
    return settled(
        library.rdmabatch_configure(
            task=name,
            token=token,
            listen=listen,
            transport=transport,
            slots=slots,
            slot_bytes=slot_bytes,
            threads=threads,
            contributor=contributor,
            confirm=confirm,
        )
    )


def connect(peers: Mapping[str, Any], timeout: float = 60.0) -> Any:
    """Connect the process that this op runs in to peers; does nothing for those it knows.

    Parameters
    ----------
    peers
        Name of each task, and the address that its `configure` returned.
    timeout
        Seconds to wait for all of them to listen.

    Returns
    -------
    tf.Tensor
        Scalar: the number of peers.

    Raises
    ------
    tf.errors.DeadlineExceededError
        One did not answer in time; the message names it.
    tf.errors.PermissionDeniedError
        One has another token.
    """
    return settled(
        library.rdmabatch_connect(
            names=tf.constant(list(peers), tf.string),
            addresses=tf.stack(list(peers.values())) if peers else tf.constant([], tf.string),
            timeout=timeout,
        )
    )


def stats() -> dict[str, int]:
    """Return the counters of the engine in the process of the current device; eager only.

    Their meanings are those of `tf_rdmabatch.engine.Engine.counters`.
    """
    names, values = library.rdmabatch_stats()
    return {
        name.decode(): int(value) for name, value in zip(names.numpy(), values.numpy(), strict=True)
    }
