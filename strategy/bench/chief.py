"""The script that a job of the benchmark runs: ``chief.py JSON``.

The argument says what to run, ``{"system": ..., "work": {...}}``. Answers are lines that begin with
`MARK`: the first when everything has been run once, then one for each line ``{"part": ...,
"seconds": ...}`` of the input, after that time. The part is ``"whole"``; networks and layers also
have ``"compute"``, their training without communication, and ``"communication"``, the way of their
parameters alone. With ``"trace": true`` there is one answer, about the graph, and nothing is
run. Ends when its input ends.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_rdmabatch.strategy.bench.layers import make_delays, make_layers, set_compute_seconds
from tf_rdmabatch.strategy.bench.programs import Program, make_local_rounds, make_program
from tf_rdmabatch.strategy.bench.systems import SYSTEMS, Rounds, System

MARK = "bench:"
# Of communication alone, before the time of computing is set.
CALIBRATION_ROUNDS = 8
CALIBRATION_SECONDS = 1.0


def main() -> None:
    """Run steps for as long as asked."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    # What libraries print is not an answer.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def answer(values: dict[str, Any]) -> None:
        print(MARK + json.dumps(values), file=answers, flush=True)

    request = json.loads(sys.argv[1])
    workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
    system = SYSTEMS[request["system"]](workers)
    if request.get("trace"):
        answer(_trace(system, make_program(system.strategy, request["work"])))
        return
    program, parts = _prepare(system, request["work"], workers)
    for part in parts.values():
        part(1)
    answer({"nbytes": program.nbytes})
    rates: dict[str, float] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        name = asked.get("part", "whole")
        if name not in rates:
            rates[name] = _rate(parts[name], 0.1)
        rounds = max(1, round(rates[name] * asked["seconds"]))
        took = _time(parts[name], rounds)
        rates[name] = rounds / took
        answer({"steps": rounds * workers, "seconds": took})


def _prepare(
    system: System, work: dict[str, Any], workers: int
) -> tuple[Program, dict[str, Rounds]]:
    """Return a work's program, and what runs the whole of it and its parts."""
    if "ratio" in work:
        return _prepare_layers(system, work["shapes"], work["ratio"], workers)
    program = make_program(system.strategy, work)
    parts = {"whole": system.prepare(program.step)}
    if "network" in work:
        parameters = make_program(system.strategy, {"shapes": program.shapes})
        parts["communication"] = system.prepare(parameters.step)
        parts["compute"] = make_local_rounds(workers, **work)
    return program, parts


def _prepare_layers(
    system: System, shapes: Sequence[Sequence[int]], ratio: float, workers: int
) -> tuple[Program, dict[str, Rounds]]:
    """Return layers that compute `ratio` times as long as they communicate."""
    communicate = system.prepare(make_program(system.strategy, {"shapes": shapes}).step)
    communicate(CALIBRATION_ROUNDS)
    set_compute_seconds(workers, len(shapes), ratio / _rate(communicate, CALIBRATION_SECONDS))
    program = make_layers(system.strategy, shapes)
    return program, {
        "whole": system.prepare(program.step),
        "communication": communicate,
        "compute": system.prepare(make_delays(len(shapes))),
    }


def _time(run: Rounds, rounds: int) -> float:
    begin = time.monotonic()
    run(rounds)
    return time.monotonic() - begin


def _rate(run: Rounds, least: float) -> float:
    """Return rounds per second, after a run of at least some seconds."""
    rounds = 1
    while (took := _time(run, rounds)) < least:
        rounds *= 2
    return rounds / took


def _trace(system: System, program: Program) -> dict[str, float]:
    """Return how long the graph of a round takes to be made, and how large it is."""
    strategy = system.strategy
    function = tf.function(lambda: strategy.run(program.step), autograph=False)
    begin, cpu_begin = time.monotonic(), time.process_time()
    graph = function.get_concrete_function().graph.as_graph_def()
    return {
        "trace_s": time.monotonic() - begin,
        "trace_cpu_s": time.process_time() - cpu_begin,
        "graph_nodes": len(graph.node) + sum(len(f.node_def) for f in graph.library.function),
        "graph_functions": len(graph.library.function),
    }


if __name__ == "__main__":
    main()
