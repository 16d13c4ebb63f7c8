"""The task of a process: its engine, its connections, its counters."""

from __future__ import annotations

import atexit
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tf_rdmabatch import _core
from tf_rdmabatch.ops._library import library
from tf_rdmabatch.transports import Transport, as_rules

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
    transport: Transport = None,
    ports: str = "",
    slots: int = 64,
    slot_bytes: int = 64 << 10,
    threads: int = 2,
    contributor: int = 0,
    confirm: str = "batch",
    spin_us: float = -1.0,
    tune_blocks: bool = False,
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
        ``"auto"``, ``"shm"``, ``"verbs"`` or ``"tcp"``, or a mapping from peers to these:
        ``{"ps:1": "tcp", "*": "auto"}``. None is what TF_RDMABATCH_TRANSPORT says in the process's
        environment, and ``"auto"`` without it.
    ports
        The range that a free port is taken from, ``"20000-20100"``, by this and by what the
        transport listens at. Nothing is what TF_RDMABATCH_PORTS says in the process's environment,
        and any port without it.
    slots, slot_bytes
        What each connection receives into: a multiple of 64 slots, and their size in bytes.
    threads
        Number of threads for what has to wait.
    contributor
        As which a worker pushes: from 0 to the parameters' contributors - 1.
    confirm
        ``"batch"``: chains of messages are confirmed together. ``"each"``: one by one, which is
        there to be compared with; the same on all tasks.
    spin_us
        Microseconds that an idle engine looks for news before it sleeps; negative is 50.
    tune_blocks
        Of a worker: try, in the first rounds, into how large messages pushes are cut best, and log
        that. Where blocks are smaller than a slot; see `serve`.

    Returns
    -------
    tf.Tensor
        String scalar: the address that it listens at, for `connect` on its peers.

    Raises
    ------
    ValueError
        `transport` is neither a name nor a mapping to names.
    tf.errors.UnavailableError
        The transport cannot run here; the message says why.
    tf.errors.InvalidArgumentError
        An option is wrong.
    tf.errors.AlreadyExistsError
        The port is in use, or all of `ports` are.
    """
    return settled(
        library.rdmabatch_configure(
            task=name,
            token=token,
            listen=listen,
            transport=as_rules(transport),
            ports=ports,
            slots=slots,
            slot_bytes=slot_bytes,
            threads=threads,
            contributor=contributor,
            confirm=confirm,
            spin_us=spin_us,
            tune_blocks=tune_blocks,
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


def software() -> dict[str, str]:
    """Return what the current device's process is: ``"host"``, and versions of programs by name."""
    rows = library.rdmabatch_software().numpy()
    return {name.decode(): value.decode() for name, value in rows}


def stats() -> dict[str, int]:
    """Return the counters and times of the task in the current device's process; eager only.

    Returns
    -------
    dict
        The counters that `tf_rdmabatch.engine.Engine.counters` explains, and sums over all rounds
        (see `round_times`): ``rounds`` and ``micro_steps``, and in nanoseconds

        - ``pull_ns``, ``push_ns``, ``collect_ns``: without their waits; pushes count from when the
          last value was there, since what is sent before is hidden behind computing;
        - ``compute_ns``: from the last pull's end until the last value to push was there;
        - ``publish_ns``; ``update_ns``: from the last collection's end to `updated`;
        - ``wait_ns``: blocked for versions, for room at the server or for contributions;
        - ``idle_ns``: between rounds.

        And ``tuned_block_bytes``: what pushes are cut into now, or 0; see `configure`.
    """
    names, values = library.rdmabatch_stats()
    return {
        name.decode(): int(value) for name, value in zip(names.numpy(), values.numpy(), strict=True)
    }


def round_times(last: int = 1024) -> npt.NDArray[np.void]:
    """Return when the task in the current device's process did what in its last rounds; eager only.

    A round begins with the first op under a new version, or of another step. Ops of rounds that
    overlap on one task are not told apart.

    Parameters
    ----------
    last
        Number of rounds; 1024 are remembered.

    Returns
    -------
    np.ndarray
        A structured array of shape (rounds,), the oldest first. Its fields are int64; times are
        nanoseconds of the monotonic clock of the task's host, 0 where it did not happen:

        - ``version``, ``step``, ``micro_steps``: of the round; 0 is none;
        - ``pull_begin``, ``pull_end``: of all pulls; computing begins at the end;
        - ``micro_step_end``, shape (16,): the last value of each micro-step was there;
        - ``push_begin``, ``compute_end``: the first value to send was there, and the last one;
        - ``push_end``: the last one was in the server's slots;
        - ``publish_begin``, ``publish_end``, ``collect_begin``, ``collect_end``, ``update_end``: of
          a server;
        - ``pull_wait``, ``push_wait``, ``collect_wait``: durations within these, in which all was
          blocked; that of pushes counts from ``compute_end``.
    """
    names, rounds = library.rdmabatch_round_times(last=last)
    fields: list[Any] = [(name.decode(), np.int64) for name in names.numpy()]
    values = rounds.numpy()
    fields.append(("micro_step_end", np.int64, (values.shape[1] - len(fields),)))
    return np.ascontiguousarray(values).view(np.dtype(fields)).reshape(len(values))


# Fields of a round's report.
REPORT_FIELDS = ("number", *_core.ROUND_FIELDS)


def round_report(number: Any) -> Any:
    """Return what is known of one round of the task in the current device's process.

    Parameters
    ----------
    number
        The version that was pulled, or the step that was pushed to: one of the last rounds.

    Returns
    -------
    tf.Tensor
        int64, of shape (fields,): the number, and the fields that `round_times` explains but
        ``micro_step_end``, zeros where the round is not known; `REPORT_FIELDS` are their names.
    """
    report = library.rdmabatch_round_report(number=tf.cast(number, tf.int64))
    return tf.ensure_shape(report, [len(REPORT_FIELDS)])


def updated(variables: Sequence[Any], step: Any) -> Any:
    """Note, in the times of the current device's task, that a server's update is done.

    Automatic control dependencies let it wait for what was done with the variables before.

    Parameters
    ----------
    variables
        At least one `tf.Variable`, or its handle, on the current device.
    step
        That was collected.

    Returns
    -------
    tf.Operation
        None in eager mode.
    """
    return library.rdmabatch_updated(
        variables=[getattr(v, "handle", v) for v in variables], step=tf.cast(step, tf.int64)
    )


def transports() -> dict[str, str]:
    """Return what carries each connection of the task in the current device's process.

    Returns
    -------
    dict
        By the peer's name the transport, and why it was picked: ``"shm (first choice)"``,
        ``"tcp (shm: the peer is on another host; verbs: no RDMA device)"``.
    """
    peers, picked = library.rdmabatch_transports()
    return {
        peer.decode(): transport.decode()
        for peer, transport in zip(peers.numpy(), picked.numpy(), strict=True)
    }
