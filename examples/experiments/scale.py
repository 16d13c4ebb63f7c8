"""How the ways to meet stragglers compare with up to 4,096 workers, by simulation.

    python -m examples.experiments.scale --json scale.json --plot scale.png

`round_model.py` is the model, `clusters.py` says where the workers' speeds come from. With
``--calibrate FILE`` the model is compared with measurements of the real system instead, that
pagerank.py or training.py has written to the file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from examples.experiments.calibration import compare
from examples.experiments.clusters import CLUSTERS
from examples.experiments.results import (
    COLORS,
    Results,
    Row,
    new_figure,
    progress_bar,
    read_rows,
)
from examples.experiments.round_model import (
    Costs,
    Reallocating,
    Resizing,
    Static,
    System,
    simulate,
)

# Of the workers, those whose gradients are dropped: of the order that J. Chen et al., Revisiting
# Distributed Synchronous SGD, 2016, find best (4 of 100).
DROPPED = 0.05
SYSTEMS: dict[str, Callable[[int, int], System]] = {
    "static": Static,
    "dropping": lambda steps, workers: Static(steps, workers, DROPPED),
    "resizing": Resizing,
    "dsana": Reallocating,
    "dsana, minimum 0": lambda steps, workers: Reallocating(steps, workers, minimum=0),
}
KEYS = ("cluster", "workers", "system", "seed", "rounds", "num_steps")


def costs_of(workers: int) -> Costs:
    """Return costs of a network that grows with the workers: all of it is assumed.

    100 MB of parameters, micro-steps of 0.1 s, links of 10 Gb/s and, for a server of each eight
    workers, 100 Gb/s.
    """
    return Costs.of_network(
        0.1,
        workers,
        max(1, workers // 8),
        megabytes=100,
        worker_rate=1250,
        server_rate=12500,
        fixed=0.005,
    )


def wanted_rows(options: argparse.Namespace) -> list[Row]:
    """Return what is to be simulated, as rows without results."""
    return [
        {
            "cluster": cluster,
            "workers": workers,
            "system": system,
            "seed": options.seed + run,
            "rounds": options.rounds,
            "num_steps": options.steps_per_worker * workers,
        }
        for cluster in options.clusters
        for workers in options.workers
        for run in range(options.runs)
        for system in SYSTEMS
    ]


def simulated(row: Row) -> Row:
    """Return a row with its results; the systems of a seed get the same workers."""
    workers, steps = row["workers"], row["num_steps"]
    random = np.random.default_rng([row["seed"], workers])
    factors = CLUSTERS[row["cluster"]].factors(row["rounds"], workers, random)
    system = SYSTEMS[row["system"]](steps, workers)
    outcome = simulate(system, steps, factors, costs_of(workers))
    return row | {
        "s_per_round": float(outcome.seconds.mean()),
        "bound_s_per_round": float(outcome.bound.mean()),
        "over_bound": outcome.over_bound,
        "lost": outcome.lost,
        "moved_per_round": outcome.moved / row["rounds"],
        "decision_ms": float(np.median(outcome.decision)) * 1e3,
        "decision_ms_p99": float(np.quantile(outcome.decision, 0.99)) * 1e3,
    }


def of_runs(rows: Sequence[Row], cluster: str, workers: int, system: str) -> dict[str, Any]:
    """Return the means over the seeds, and the least and the largest `over_bound`."""
    own = [
        r for r in rows if (r["cluster"], r["workers"], r["system"]) == (cluster, workers, system)
    ]
    fields = ("over_bound", "lost", "moved_per_round", "decision_ms", "decision_ms_p99")
    means: dict[str, Any] = {field: float(np.mean([r[field] for r in own])) for field in fields}
    over = [r["over_bound"] for r in own]
    return means | {"least": min(over), "most": max(over)}


def print_tables(rows: Sequence[Row], options: argparse.Namespace) -> None:
    """Print a table for each cluster."""
    console = Console()
    for cluster in options.clusters:
        table = Table(title=f"{cluster}: time for a gradient over the bound, by workers")
        for column in ("system", *map(str, options.workers), "lost", "moved a round", "ms"):
            table.add_column(column, justify="left" if column == "system" else "right")
        for system in SYSTEMS:
            all_sizes = [of_runs(rows, cluster, workers, system) for workers in options.workers]
            last = all_sizes[-1]
            table.add_row(
                system,
                *(f"{c['over_bound']:.2f}" for c in all_sizes),
                f"{last['lost']:.1%}",
                f"{last['moved_per_round']:.1f}",
                f"{last['decision_ms']:.2f}",
            )
        console.print(table)
    console.print("lost, moved and ms (of a decision, median): with the most workers")


def print_calibration(path: Path) -> None:
    """Print the model's predictions beside what was measured.

    Raises
    ------
    ValueError
        The file does not have what is needed.
    """
    table = Table(title="the model against the real system, an iteration")
    for column in ("work", "scenario", "mode", "measured", "predicted", "error"):
        table.add_column(column, justify="right" if column in {"measured", "predicted"} else "left")
    results = compare(read_rows(path))
    for row in results:
        table.add_row(
            row["work"],
            row["scenario"],
            row["mode"],
            f"{row['measured_s'] * 1e3:.1f} ms",
            f"{row['predicted_s'] * 1e3:.1f} ms",
            f"{row['error']:+.1%}" + (" (its source)" if row["calibrated_with"] else ""),
        )
    console = Console()
    console.print(table)
    errors = [abs(row["error"]) for row in results if not row["calibrated_with"]]
    if errors:
        console.print(f"errors of predictions: mean {np.mean(errors):.1%}, most {max(errors):.1%}")


def plot(rows: Sequence[Row], options: argparse.Namespace) -> None:
    """Draw the time over the bound for each cluster, and that of a decision."""
    panels = len(options.clusters) + 1
    columns = min(3, panels)
    figure, axes = new_figure(-(-panels // columns), columns)
    sizes = options.workers
    for cluster, axis in zip(options.clusters, axes, strict=False):
        for system, color in zip(SYSTEMS, COLORS, strict=False):
            cells = [of_runs(rows, cluster, workers, system) for workers in sizes]
            axis.plot(sizes, [c["over_bound"] for c in cells], "o-", color=color, label=system)
            low, high = ([c[end] for c in cells] for end in ("least", "most"))
            axis.fill_between(sizes, low, high, color=color, alpha=0.15, linewidth=0)
        axis.axhline(1, color="black", linewidth=0.8, linestyle="--")
        axis.set(xscale="log", yscale="log", xlabel="workers", title=cluster)
        axis.set_ylabel("time over the lower bound")
        ticks = [t for t in (1, 1.2, 1.5, 2, 3, 5, 10, 20, 50) if t <= axis.get_ylim()[1]]
        axis.set_yticks(ticks, [f"{t:g}" for t in ticks])
        axis.minorticks_off()
        axis.set_xticks(sizes, [str(size) for size in sizes])
    axis = axes[panels - 1]
    for cluster, color in zip(options.clusters, COLORS, strict=False):
        cells = [of_runs(rows, cluster, workers, "dsana") for workers in sizes]
        axis.plot(sizes, [c["decision_ms"] for c in cells], "o-", color=color, label=cluster)
    axis.set(xscale="log", xlabel="workers", title="decision of dsana", ylabel="milliseconds")
    axis.minorticks_off()
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False, fontsize=8)
    axes[0].legend(frameon=False, fontsize=8)
    for unused in axes[panels:]:
        unused.set_visible(False)
    figure.savefig(options.plot)


def numbers(text: str) -> list[int]:
    """Return the numbers of a list with commas."""
    values = [int(number) for number in text.split(",")]
    if not values or min(values) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of positive numbers")
    return values


def names(text: str) -> list[str]:
    """Return the clusters of a list with commas."""
    values = text.split(",")
    for value in values:
        if value not in CLUSTERS:
            raise argparse.ArgumentTypeError(
                f"no cluster {value!r}; there are {', '.join(CLUSTERS)}"
            )
    return values


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment as the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=numbers, default=[16, 64, 256, 1024, 4096])
    parser.add_argument("--clusters", type=names, default=list(CLUSTERS))
    parser.add_argument("--rounds", type=int, default=300, help="of each simulation")
    parser.add_argument("--runs", type=int, default=5, help="simulations, of a seed each")
    parser.add_argument("--steps-per-worker", type=int, default=8, help="micro-steps of a round")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="results; what is there is not simulated again")
    parser.add_argument("--plot", type=Path)
    parser.add_argument(
        "--calibrate", type=Path, metavar="JSON", help="of pagerank.py or training.py"
    )
    options = parser.parse_args(arguments)
    if min(options.rounds, options.runs, options.steps_per_worker) < 1:
        parser.error("--rounds, --runs and --steps-per-worker are at least 1")
    try:
        if options.calibrate is not None:
            print_calibration(options.calibrate)
            return 0
        results = Results(options.json, KEYS)
    except ValueError as error:
        parser.error(str(error))
    rows = []
    with progress_bar() as bar:
        wanted = wanted_rows(options)
        task = bar.add_task("simulating", total=len(wanted))
        for row in wanted:
            bar.update(task, description=f"{row['cluster']}, {row['workers']} workers")
            done = results.find(row)
            if done is None:
                done = simulated(row)
                results.add(done)
            rows.append(done)
            bar.advance(task)
    print_tables(rows, options)
    if options.plot is not None:
        plot(rows, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
