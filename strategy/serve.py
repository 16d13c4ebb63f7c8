"""What a worker or a parameter server runs, until the chief ends."""

from __future__ import annotations

import argparse
import logging
import socket
import time
from typing import Any

import tensorflow as tf

from tf_rdmabatch import _logs
from tf_rdmabatch import ops as _ops  # noqa: F401  The server runs the library's ops.
from tf_rdmabatch.addresses import split_address
from tf_rdmabatch.cli import CommandError
from tf_rdmabatch.strategy.resolver import find_resolver, require_server
from tf_rdmabatch.strategy.watch import (
    HostUnreachableError,
    cut_connections,
    host_errors,
    keep_alive,
)

LOGGER = logging.getLogger("tf_rdmabatch")
# Seconds between attempts to reach a chief, and between lines about one that has not come yet.
_INTERVAL = 0.5
_PATIENCE = 30.0


def serve(
    cluster_resolver: Any = None, *, linger: float = 60.0, start_timeout: float | None = None
) -> None:
    """Serve this task; returns when the chief has ended. Tasks may start in any order.

    Parameters
    ----------
    cluster_resolver
        Says which task this is; None is TF_CONFIG.
    linger
        Seconds to wait for another chief, such as the next attempt, after one has ended.
    start_timeout
        Seconds to wait for the first chief; None is however long.

    Raises
    ------
    TimeoutError
        No chief came.
    ValueError
        There is no cluster.
    RuntimeError
        This process is neither a worker nor a ps, or its address is in use.
    """
    resolver = find_resolver(cluster_resolver)
    job, index = require_server(resolver)
    spec = resolver.cluster_spec()
    config = tf.compat.v1.ConfigProto()
    # Remote functions block a thread each; with fewer than one for each peer they deadlock.
    config.inter_op_parallelism_threads = max(8, spec.num_tasks("worker") + 2)
    try:
        server = tf.distribute.Server(
            spec,
            job_name=job,
            task_index=index,
            protocol=resolver.rpc_layer or "grpc",
            config=config,
        )
    except tf.errors.UnknownError as error:
        raise RuntimeError(
            f"{job}:{index} cannot listen at {spec.task_address(job, index)} ({error.message}): "
            "does the same task of an earlier job still run, or has another program the port, at "
            "any address of this host?"
        ) from error
    LOGGER.info("%s:%d serves at %s", job, index, server.target)
    chiefs = spec.as_dict().get("chief")
    # The engine, which the chief starts here, has things to say too.
    _logs.show()
    _logs.acquire()
    if not chiefs:
        server.join()
    address = chiefs[0] if isinstance(chiefs, list) else next(iter(chiefs.values()))
    _wait_for_end(address, linger, start_timeout)
    _logs.release()


def _wait_for_end(chief: str, linger: float, start_timeout: float | None) -> None:
    """Return when nobody has listened at the chief's address for some time, after somebody did."""
    deadline = time.monotonic() + (float("inf") if start_timeout is None else start_timeout)
    warn_at = time.monotonic() + _PATIENCE
    came = False
    while time.monotonic() < deadline:
        missing = _follow(chief)
        if missing is None:
            came = True
            deadline, warn_at = time.monotonic() + linger, float("inf")
        elif time.monotonic() >= warn_at:
            LOGGER.warning("waiting for the chief at %s (%s)", chief, missing)
            warn_at = time.monotonic() + _PATIENCE
        time.sleep(_INTERVAL)
    if not came:
        raise TimeoutError(
            f"no chief has come at {chief} in {start_timeout:g} s: has its script failed, or not "
            "created the strategy yet? --start-timeout waits longer"
        )
    LOGGER.info("the chief at %s has ended", chief)


def _follow(chief: str) -> OSError | None:
    """Return None once a connection to the chief has ended, or why there was none."""
    try:
        connection = socket.create_connection(split_address(chief), timeout=5)
    except OSError as error:
        return error
    with connection:
        connection.settimeout(None)
        keep_alive(connection)
        try:
            # Its server greets; it closes silent connections after a while.
            with host_errors():
                while connection.recv(4096):
                    pass
        except HostUnreachableError:
            # When the chief is back it knows nothing of TensorFlow's connections with it, and what
            # is sent over one of them would be lost.
            cut_connections(chief)
        except OSError:
            pass
    return None


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``tf-rdmabatch serve``."""
    parser.add_argument(
        "--linger",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="wait so long for another chief after one has ended (default: %(default)s)",
    )
    parser.add_argument(
        "--start-timeout",
        type=float,
        metavar="SECONDS",
        help="end after so long in which no chief came (default: wait for one however long)",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        serve(linger=options.linger, start_timeout=options.start_timeout)
    except TimeoutError as error:
        raise CommandError(str(error)) from error
    except (ValueError, RuntimeError) as error:
        raise CommandError(str(error), status=2) from error
    return 0
