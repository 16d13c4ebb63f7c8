"""Routes the engine's log to ``logging.getLogger("tf_rdmabatch")``.

The engine's threads put records into a queue and never wait for the interpreter. A Python thread
takes them out; it runs while there are engines.
"""

from __future__ import annotations

import logging
import os
import threading

from tf_rdmabatch import _core

LOGGER = logging.getLogger("tf_rdmabatch")

_lock = threading.Lock()
_users = 0
_thread: threading.Thread | None = None


def acquire() -> None:
    """Start to forward records, unless somebody did; each call needs a `release`."""
    global _users, _thread  # noqa: PLW0603
    with _lock:
        _users += 1
        if _users == 1:
            _core.open_log()
            _thread = threading.Thread(target=_forward, name="tf_rdmabatch-log", daemon=True)
            _thread.start()


def release() -> None:
    """End what `acquire` started, with its last user: every record was forwarded then."""
    global _users, _thread  # noqa: PLW0603
    with _lock:
        _users -= 1
        if _users > 0 or _thread is None:
            return
        thread, _thread = _thread, None
        _core.close_log()
        # A logging handler may have closed the engine.
        if thread is not threading.current_thread():
            thread.join()


def show() -> None:
    """Show records on stderr from a level on, unless the program has said which are to be shown.

    It has if it gave this logger a level, or all loggers one that shows INFO. Other handlers say
    nothing: libraries install some. The level is the environment's ``TF_RDMABATCH_LOG_LEVEL``, by
    default INFO.
    """
    if LOGGER.level != logging.NOTSET or LOGGER.isEnabledFor(logging.INFO):
        return
    level = logging.getLevelName(os.environ.get("TF_RDMABATCH_LOG_LEVEL", "INFO").upper())
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("tf_rdmabatch: %(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(level if isinstance(level, int) else logging.INFO)
    # A program that sets up logging later would see everything twice.
    LOGGER.propagate = False


def _forward() -> None:
    while records := _core.take_log():
        for level, message in records:
            LOGGER.log(level, "%s", message)


def _forget() -> None:
    """In a forked process: the thread is not there, and the lock may be held for ever."""
    global _lock, _users, _thread
    _lock, _users, _thread = threading.Lock(), 0, None


os.register_at_fork(after_in_child=_forget)
