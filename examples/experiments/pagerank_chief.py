"""The chief of the PageRank experiment: ``pagerank_chief.py JSON``, started by `pagerank`.

The argument names the graph's partitions. The first answer is what a micro-step takes; then each
line of the input ``{"mode": ..., "scenario": ..., "iterations": ...}`` makes a strategy and is
answered when it is ready; the next line, whatever it is, has it run.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import tf_rdmabatch
from examples.experiments.graphs import Partitions, load_partitions
from examples.experiments.pagerank_program import PageRank
from tf_rdmabatch.bench.slowdown import SlowDown, make_scenario
from tf_rdmabatch.bench.strategy_job import MARK
from tf_rdmabatch.strategy.stats import communication_seconds, round_seconds, step_seconds

# Into how many pieces a replica's result is cut where blocks are to travel while it computes.
PIECES = 4
# Of a mode: how messages are confirmed, whether results are cut, whether steps move.
MODES = {
    "baseline": ("each", False, False),
    "batched": ("batch", False, False),
    "scheduling": ("each", False, True),
    "network": ("batch", True, False),
    "dsana": ("batch", True, True),
}
WARM_UP = 3
CALIBRATION = 6
MOST_CALIBRATIONS = 8
# Seconds of a micro-step: what a round takes besides is to be little.
LEAST_STEP = 0.05


class Job:
    """One mode's strategy and program.

    Parameters
    ----------
    graph
        Its partitions.
    mode
        One of `MODES`.
    """

    def __init__(self, graph: Partitions, mode: str) -> None:
        confirm, cut, moves = MODES[mode]
        whole = 8 * graph.nodes
        self.strategy = tf_rdmabatch.ParameterServerStrategy(
            num_virtual_replicas=len(graph.ranges) - 1,
            confirm=confirm,
            block_size="auto" if cut else whole,
        )
        self.slow_down = SlowDown(self.strategy)
        self.program = PageRank(self.strategy, graph, PIECES if cut else 1)
        for _ in range(WARM_UP):
            self.program.iterate()
        self.reallocation = tf_rdmabatch.StepReallocation(self.strategy) if moves else None

    def step_seconds(self, rounds: int, workers: Any = slice(None)) -> float:
        """Run rounds and return the median time of a micro-step of some workers."""
        for _ in range(rounds):
            self.program.iterate()
        reports = self.strategy.round_reports()[-rounds:]
        return float(np.nanmedian(step_seconds(reports)[:, workers]))

    def run(self, base: float, own: float, scenario: str, seed: int, count: int) -> dict[str, Any]:
        """Run iterations from the start and return what was measured.

        Parameters
        ----------
        base
            Seconds of a micro-step on a worker of factor 1.
        own
            What of it is computing; the rest is waited for.
        scenario, seed
            Who is slow when.
        count
            Of the iterations.
        """
        workers = len(self.strategy.allotment)
        slowness = make_scenario(scenario, workers, seed)
        self.program.reset()
        seconds, residuals, allotments = [], [], []
        reports = [self.strategy.round_reports()[-1]]
        for number in range(count):
            factors = slowness.factors(number)
            self.slow_down.set({w: max(0.0, f * base - own) for w, f in enumerate(factors)})
            allotments.append(self.strategy.allotment)
            begin = time.perf_counter()
            residuals.append(float(self.program.iterate()))
            if self.reallocation is not None:
                self.reallocation.update()
            seconds.append(time.perf_counter() - begin)
            reports.append(self.strategy.round_reports()[-1])
        factors = np.stack([slowness.factors(number) for number in range(count)])
        return {
            "seconds": seconds,
            "residuals": residuals,
            "allotments": allotments,
            "moves": 0 if self.reallocation is None else len(self.reallocation.decisions),
        } | _times(np.stack(reports), factors)


def _times(reports: Any, factors: Any) -> dict[str, float]:
    """Return medians of a step of factor 1, of communication, and of what else a round takes."""
    rounds = reports[1:]
    step, communication = step_seconds(rounds), communication_seconds(rounds)
    slowest = np.nanmax(step * rounds["micro_steps"] + np.nan_to_num(communication), axis=1)
    pairs = zip(rounds, reports[:-1], strict=True)
    # From one round's begin to the next one's: the last one's end is not known.
    lengths = [round_seconds(after, before) for after, before in pairs]
    whole = np.asarray([np.nan if length is None else length for length in lengths[1:]])
    fastest = factors == factors.min(axis=1, keepdims=True)
    return {
        "step_s": float(np.nanmedian((step / factors)[fastest])),
        "communication_s": float(np.nanmedian(communication)),
        "overhead_s": float(np.nanmedian(whole - slowest[:-1])),
    }


def calibrate(graph: Partitions, base: float | None, share: float) -> tuple[float, float]:
    """Return the time of a micro-step of factor 1, and what of it is computing.

    It is measured while the others compute too, since workers may share processors: first without
    waits, to find a time of which computing has the wanted share, then with those of scenario A.
    """
    job = Job(graph, "batched")
    own = job.step_seconds(CALIBRATION)
    base = max(LEAST_STEP, round(own / share, 3)) if base is None else base
    factors = make_scenario("A", len(job.strategy.allotment)).factors(0)
    normal = factors == factors.min()
    for _ in range(MOST_CALIBRATIONS):
        before = own
        delays = np.maximum(0.0, factors * base - own)
        job.slow_down.set(dict(enumerate(delays.tolist())))
        own = job.step_seconds(CALIBRATION, normal) - float(delays[normal][0])
        # Others on this machine may have come or gone meanwhile.
        if abs(own - before) < 0.02 * base:
            break
    return base, own


def main() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    # What libraries print is not an answer.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def answer(values: dict[str, Any]) -> None:
        print(MARK.decode() + json.dumps(values), file=answers, flush=True)

    request = json.loads(sys.argv[1])
    graph = load_partitions(Path(request["folder"]))
    assert graph is not None, "pagerank makes it before it starts this"
    base, own = calibrate(graph, request["base"], request["share"])
    answer({"base_s": base, "own_s": own})
    for line in sys.stdin:
        asked = json.loads(line)
        job = Job(graph, asked["mode"])
        answer({"ready": True})
        next(sys.stdin)
        result = job.run(base, own, asked["scenario"], asked["seed"], asked["iterations"])
        np.save(asked["ranks"], job.program.ranks.numpy())
        answer(result)


if __name__ == "__main__":
    main()
