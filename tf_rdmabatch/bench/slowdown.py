"""Makes chosen workers slower, to study stragglers: ``python -m tf_rdmabatch.bench.slowdown``.

In a program, `SlowDown` has the replicas of some workers wait, which needs no spare processor: four
workers can be studied on two cores. `CpuQuota` and the command line limit the processor time of
processes. `Lasting` and `Changing` say who is slow when.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tf_rdmabatch.bench.arguments import integer, list_of
from tf_rdmabatch.bench.cpu_quota import CpuQuota, QuotaError
from tf_rdmabatch.bench.cpu_time import descendants
from tf_rdmabatch.bench.scenarios import Changing, Lasting, Scenario, ideal_seconds, make_scenario

__all__ = [
    "Changing",
    "CpuQuota",
    "Lasting",
    "QuotaError",
    "Scenario",
    "SlowDown",
    "ideal_seconds",
    "make_scenario",
]


class SlowDown:
    """Has replicas of chosen workers wait before they compute, without using a processor.

    The wait is part of the worker's computing: its times and the scheduler see a slow worker.

    Parameters
    ----------
    strategy
        A synchronous `tf_rdmabatch.ParameterServerStrategy`. Only functions that are traced from
        now on are slowed: make this before the first round.

    Raises
    ------
    TypeError
        The strategy cannot be slowed.
    """

    def __init__(self, strategy: Any) -> None:
        self._extended = strategy.extended
        if not hasattr(self._extended, "set_delays"):
            raise TypeError(
                "SlowDown takes a tf_rdmabatch.ParameterServerStrategy(consistency='bsp'), not "
                f"{strategy!r}"
            )
        self._seconds = [0.0] * self._extended.worker_count
        # Servers that outlive their chiefs keep what was set by the last one.
        self._extended.set_delays(self._seconds)
        self._extended.slowed = True

    @property
    def seconds(self) -> tuple[float, ...]:
        """What each worker waits in each replica."""
        return tuple(self._seconds)

    def set(self, seconds: Mapping[int, float]) -> None:
        """Set what some workers wait in each of their replicas, from the next one on.

        Parameters
        ----------
        seconds
            By the worker's number, from 0 to 3600; 0 ends its waits. Others keep theirs.

        Raises
        ------
        ValueError
            There is no such worker, or a time is not in the range.
        """
        wanted = list(self._seconds)
        for worker, delay in seconds.items():
            if worker not in range(len(wanted)):
                raise ValueError(f"there is no worker {worker!r}: they are 0 to {len(wanted) - 1}")
            wanted[worker] = float(delay)
        if wanted != self._seconds:
            self._extended.set_delays(wanted)
            self._seconds = wanted


def main(argv: Sequence[str] | None = None) -> int:
    """Limit processes until they end, for some time, or until interrupted; return the status."""
    parser = argparse.ArgumentParser(
        prog="python -m tf_rdmabatch.bench.slowdown",
        description="Limit the processor time of processes, and of those that they started, with "
        "control groups (Linux; needs the right to make one, usually root's).",
    )
    parser.add_argument("--pids", type=list_of(integer(1, 1 << 30)), required=True, metavar="A,B")
    parser.add_argument(
        "--fraction", type=float, required=True, help="processors they may use: 0.5 is half of one"
    )
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="default: until interrupted"
    )
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    pids = list(dict.fromkeys(pid for one in options.pids for pid in descendants(one)))
    end = time.monotonic() + options.seconds
    try:
        with CpuQuota(pids, options.fraction):
            print(f"{len(pids)} processes have {options.fraction:g} processors", flush=True)
            while time.monotonic() < end:
                time.sleep(min(1.0, max(0.0, end - time.monotonic())))
    except (QuotaError, ValueError) as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
