"""The demo: trains digits with two workers and a server, and compares with TensorFlow's own.

    python -m examples.demo.run

Two clusters run on this host, one for each system; their steps are measured in turn. Then a third
one trains with a worker that is four times slower, without and with `StepReallocation`. Everything
is in the output, but for pictures of some rounds, in the folder ``demo``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from examples.demo.timeline import draw

ROOT = Path(__file__).resolve().parents[2]
# Seconds to wait for an answer.
PATIENCE = 240.0
ROUNDS_SHOWN = 4
LAUNCH = [sys.executable, "-m", "tf_rdmabatch", "launch", "--workers", "2", "--ps", "1"]


class Job:
    """A system's cluster.

    Parameters
    ----------
    connection
        To its chief.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def ask(self, name: str, argument: float) -> Any:
        """Have the chief do something, and return what it answers."""
        self._connection.send((name, argument))
        return self.answer()

    def answer(self) -> Any:
        """Wait for the chief."""
        # A chief that ends closes the connection.
        with contextlib.suppress(EOFError, ConnectionError):
            if self._connection.poll(PATIENCE):
                return self._connection.recv()
        raise RuntimeError("a job has failed: see above, or stock.log beside the picture")

    def end(self) -> None:
        """Let the chief end."""
        self._connection.send(None)


@contextlib.contextmanager
def launched(system: str, output: IO[bytes] | None = None) -> Iterator[Job]:
    """Run a cluster whose chief takes requests, and show its output or write it to a file."""
    with tempfile.TemporaryDirectory() as folder:
        address = str(Path(folder) / "requests")
        script = ROOT / "examples" / "demo" / "chief.py"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen()
            process = subprocess.Popen(
                [*LAUNCH, str(script), system, address],
                env=os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"},
                stdout=output,
                stderr=output,
            )
            try:
                with accept(listener, process) as connection:
                    job = Job(connection)
                    job.answer()
                    yield job
                    job.end()
                    process.wait(PATIENCE)
            finally:
                # It ends its tasks.
                process.terminate()
                process.wait()


def accept(listener: socket.socket, process: subprocess.Popen[bytes]) -> Connection:
    """Wait for the chief that a process launches."""
    listener.settimeout(0.5)
    until = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(TimeoutError):
            chief, _ = listener.accept()
            chief.setblocking(True)
            return Connection(chief.detach())
    raise RuntimeError("a job has not started: see above, or stock.log beside the picture")


def run(epochs: int, turns: int, steps: int, picture: Path) -> None:
    """Train and compare.

    Parameters
    ----------
    epochs
        To train.
    turns
        Measurements of each system.
    steps
        In each of them.
    picture
        Path of the timeline.
    """
    begin = time.monotonic()
    picture.parent.mkdir(parents=True, exist_ok=True)
    with launched("tf_rdmabatch") as ours:
        accuracy = ours.ask("train", epochs)
        print("\nThe same training with the stock strategy, whose output is in stock.log ...")
        with (picture.parent / "stock.log").open("wb") as log, launched("stock", log) as stock:
            own, other = measure_in_turn([ours, stock], turns, steps)
        times = ours.ask("round_times", ROUNDS_SHOWN)
    draw({f"{ROUNDS_SHOWN} steps of the demo with tf_rdmabatch": times}, picture)
    print()
    print(f"test accuracy    {accuracy:.1%} after {epochs} epochs")
    print(
        f"time per step    {1e3 * own['seconds']:.1f} ms with tf_rdmabatch: synchronous, Keras fit"
    )
    print(f"                 {1e3 * other['seconds']:.1f} ms with the stock strategy over gRPC:")
    print("                 asynchronous, a loop by hand, since Keras 3's fit does not support it")
    print(f"                 60 images; medians of {turns} times {steps} steps, in turn")
    print(f"moved per step   {own['pulled'] / 1e6:.2f} MB pulled by both workers together,")
    print(f"                 {own['pushed'] / 1e6:.2f} MB pushed")
    print(f"timeline         {os.path.relpath(picture)}")
    run_straggler(epochs, picture.with_name("straggler.png"))
    print(f"all of it took   {time.monotonic() - begin:.0f} s")


def run_straggler(epochs: int, picture: Path) -> None:
    """Train with a worker that is four times slower, without and with steps that move.

    Parameters
    ----------
    epochs
        To train, each time from the same weights.
    picture
        Path of the timeline of both.
    """
    print(
        "\nThe same network while worker:1 is 4 times slower, without and with StepReallocation ..."
    )
    with launched("straggler") as job:
        epochs = max(1, epochs // 5)
        static = job.ask("static", epochs)
        jobs = {f"{ROUNDS_SHOWN} steps as they are": job.ask("round_times", ROUNDS_SHOWN)}
        moved = job.ask("reallocated", epochs)
        jobs[f"{ROUNDS_SHOWN} steps with StepReallocation"] = job.ask("round_times", ROUNDS_SHOWN)
    draw(jobs, picture)
    difference = abs(static["weights"] - moved["weights"]).max()
    print()
    print(f"time per step    {1e3 * static['seconds']:.1f} ms with replicas {static['allotment']}")
    print(f"                 {1e3 * moved['seconds']:.1f} ms with StepReallocation, which ended at")
    print(f"                 {moved['allotment']}")
    print(f"result           final weights differ by at most {difference:.1g}")
    print(f"timeline         {os.path.relpath(picture)}")


def measure_in_turn(jobs: Sequence[Job], turns: int, steps: int) -> list[dict[str, float]]:
    """Return what a step takes each job: medians of as many measurements as there are turns."""
    for job in jobs:
        job.ask("measure", min(steps, 10))
    results: list[list[dict[str, float]]] = [[] for _ in jobs]
    for _ in range(turns):
        for job, own in zip(jobs, results, strict=True):
            own.append(job.ask("measure", steps))
    return [{key: statistics.median(r[key] for r in own) for key in own[0]} for own in results]


def main() -> None:
    """Run the demo as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--picture", type=Path, default=ROOT / "demo" / "timeline.png")
    options = parser.parse_args()
    run(options.epochs, options.turns, options.steps, options.picture)


if __name__ == "__main__":
    main()
