"""How fast a connection is: one-sided transfers, which take no program's time on the other side."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from tf_rdmabatch.engine import Connection, Engine, RemoteRegion

# What a peer lets be written to: little, where the memory that may be locked is little.
REGION_BYTES = 4 << 20
_PIECE_BYTES = 1 << 20
_SMALL_BYTES = 64
_FIRST_BYTES = 64 << 10
_FEWEST, _MOST = 5, 2000


@dataclass(frozen=True)
class Speed:
    """What was measured of one direction.

    Attributes
    ----------
    latency_us
        Microseconds of a small read at the peer, there and back, median.
    gb_per_s
        Gigabytes (1e9 bytes) a second that arrive when large pieces are written to the peer.
    """

    latency_us: float
    gb_per_s: float


class _Clock:
    """Seconds that are left of a deadline, for each wait."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        return max(0.01, self._end - time.monotonic())


def measure(
    engine: Engine, connection: Connection, region: RemoteRegion, seconds: float, timeout: float
) -> Speed:
    """Measure a connection.

    Parameters
    ----------
    engine
        Of this side.
    connection
        With the peer.
    region
        The peer's, writable, of at least `REGION_BYTES`.
    seconds
        To spend on each of the two figures, more where the connection is slow.
    timeout
        Seconds that waits may take beyond that.

    Raises
    ------
    EngineError
        `DeadlineExceeded` where not even a little arrives in time.
    """
    clock = _Clock(timeout + 4 * seconds)
    memory = engine.allocate(REGION_BYTES, "uint8")
    small = memory[:_SMALL_BYTES]
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < _FEWEST or (len(times) < _MOST and time.perf_counter() - begin < seconds):
        before = time.perf_counter()
        connection.read(small, region, timeout=clock.left())
        times.append(time.perf_counter() - before)
    latency = statistics.median(times[1:])
    count = _FIRST_BYTES
    while True:
        pieces = [
            (memory[offset : min(offset + _PIECE_BYTES, count)], region, offset)
            for offset in range(0, min(count, REGION_BYTES), _PIECE_BYTES)
        ]
        before = time.perf_counter()
        for _ in range(max(1, count // REGION_BYTES)):
            connection.write_many(pieces, timeout=clock.left())
        # It comes back after all that was written before it has arrived.
        connection.read(small, region, timeout=clock.left())
        took = time.perf_counter() - before
        if took > seconds / 2:
            return Speed(latency * 1e6, count / max(took - latency, 1e-9) / 1e9)
        count *= 2
