"""The script that a job of the benchmark runs: ``chief.py JSON``.

The argument says what to run, ``{"system": ..., "work": {...}}``. Answers are lines that begin with
`MARK`: the first when everything has been run once, then one for each line ``{"part": ...,
"seconds": ...}`` of the input, after that time. The part is ``"whole"``; a network also has
``"compute"``, its training without communication, and ``"communication"``, its parameters' way
without the network. With ``"trace": true`` there is one answer, about the graph, and nothing is
run. Ends when its input ends.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import tensorflow as tf

from tf_rdmabatch.strategy.bench.programs import Program, make_local_rounds, make_program
from tf_rdmabatch.strategy.bench.systems import SYSTEMS, Rounds, System

MARK = "bench:"


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
    program = make_program(system.strategy, request["work"])
    if request.get("trace"):
        answer(_trace(system, program))
        return
    parts = _parts(system, program, request["work"], workers)
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


def _parts(
    system: System, program: Program, work: dict[str, Any], workers: int
) -> dict[str, Rounds]:
    parts = {"whole": system.prepare(program.step)}
    if "network" in work:
        parameters = make_program(system.strategy, {"shapes": program.shapes})
        parts["communication"] = system.prepare(parameters.step)
        parts["compute"] = make_local_rounds(workers, **work)
    return parts


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
