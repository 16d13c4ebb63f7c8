"""The model of rounds against measurements of the real system.

Of each work and network the model knows one static run of scenario A, from which it takes what a
micro-step, a worker's communication and the rest of a round cost. It then predicts that run, the
static one of scenario B, and those with moving steps in both scenarios.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from examples.experiments.results import Row
from examples.experiments.round_model import Costs, Reallocating, Static, System, simulate
from tf_rdmabatch.bench.scenarios import make_scenario

# A mode with static steps: the one in which they move over the same network.
PAIRS = {"baseline": "scheduling", "batched": "", "network": "dsana"}
NEEDED = ("step_s", "communication_s", "overhead_s", "workers", "num_steps", "seed")


def predict(row: Row, base: Row, moving: bool) -> float:
    """Return the model's seconds of an iteration of a run.

    Parameters
    ----------
    row
        Which run: its scenario, seed and rounds are used.
    base
        A static run over the same network: its costs are used.
    moving
        Whether steps move.
    """
    workers, steps = row["workers"], row["num_steps"]
    rounds = int(row.get("rounds") or row["iterations"])
    first = int(row.get("counted_from", 0))
    scenario = make_scenario(row["scenario"], workers, row["seed"])
    factors = np.array([scenario.factors(number) for number in range(rounds)])
    random = np.random.default_rng(row["seed"])
    factors *= np.exp(random.normal(0, base.get("jitter", 0.0), factors.shape))
    costs = Costs(base["step_s"], pull=base["communication_s"], fixed=base["overhead_s"])
    system: System = Reallocating(steps, workers) if moving else Static(steps, workers)
    return float(simulate(system, steps, factors, costs).seconds[first:].mean())


def compare(rows: Sequence[Row]) -> list[Row]:
    """Return the runs that the model predicts, with what it says and how far off that is.

    Raises
    ------
    ValueError
        There is no run that it can be calibrated with.
    """
    known = [row for row in rows if all(row.get(field) is not None for field in NEEDED)]
    results = []
    for base in known:
        if base["scenario"] != "A" or base["mode"] not in PAIRS:
            continue
        for row in known:
            same = all(row.get(k) == base.get(k) for k in ("graph", "network", "num_steps"))
            if not same or row["mode"] not in (base["mode"], PAIRS[base["mode"]]):
                continue
            predicted = predict(row, base, moving=row["mode"] != base["mode"])
            measured = row["s_per_iteration"]
            results.append(
                {
                    "work": row.get("graph") or row.get("network"),
                    "scenario": row["scenario"],
                    "mode": row["mode"],
                    "measured_s": measured,
                    "predicted_s": predicted,
                    "error": predicted / measured - 1,
                    "calibrated_with": row is base,
                }
            )
    if not results:
        raise ValueError(
            "no run to calibrate with: scenario A in mode baseline, batched or network, of "
            "pagerank.py or training.py"
        )
    return results
