"""The script that a job of the benchmark runs: ``chief.py JSON``.

The argument says what to run, ``{"system": ..., "work": {...}}``. Answers are lines that begin with
`MARK`: the first when the step has been run, then one for each line ``{"seconds": ...}`` of the
input, after that time. Ends when its input ends.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from tf_rdmabatch.strategy.bench.programs import make_program
from tf_rdmabatch.strategy.bench.systems import SYSTEMS, System

MARK = "bench:"


def main() -> None:
    """Run steps for as long as asked."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    # What libraries print is not an answer.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def answer(**values: Any) -> None:
        print(MARK + json.dumps(values), file=answers, flush=True)

    request = json.loads(sys.argv[1])
    workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
    system = SYSTEMS[request["system"]](workers)
    program = make_program(system.strategy, request["work"])
    system.prepare(program.step)
    system.run(1)
    answer(nbytes=program.nbytes)
    rate = _rate(system, 0.1)
    for line in sys.stdin:
        seconds = json.loads(line)["seconds"]
        rounds = max(1, round(rate * seconds))
        took = _time(system, rounds)
        rate = rounds / took
        answer(steps=rounds * workers, seconds=took)


def _time(system: System, rounds: int) -> float:
    begin = time.monotonic()
    system.run(rounds)
    return time.monotonic() - begin


def _rate(system: System, least: float) -> float:
    """Return rounds per second, after a run of at least some seconds."""
    rounds = 1
    while (took := _time(system, rounds)) < least:
        rounds *= 2
    return rounds / took


if __name__ == "__main__":
    main()
