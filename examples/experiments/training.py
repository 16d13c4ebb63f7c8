"""Training with slow workers: what moving steps and a faster network bring, each and together.

    python -m examples.experiments.training --json training.json --plot training.png

Two networks are trained with Keras `fit` by four workers and a parameter server on this host, in
two scenarios (A: one worker 2 and one 4 times slower for good; B: slow periods that come and go; on
demand a third, none: all are as fast) and five modes: `baseline` (whole parameters, confirmed one
by one), `batched` (whole parameters), `network` (in blocks), `scheduling` (baseline with
StepReallocation) and `dsana` (both). Workers are made slow by waiting, which needs no processor of
its own. `training_job.py` is what a job runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from examples.experiments.results import COLORS, Results, Row, new_figure, progress_bar
from tf_rdmabatch.bench.strategy_job import StrategyJob
from tf_rdmabatch.cli import CommandError

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "experiments" / "training_job.py"
NETWORKS = ("digits", "wide")
MODES = ("baseline", "batched", "network", "scheduling", "dsana")
# Nobody is slow.
NONE = "none"
SCENARIOS = ("A", "B", NONE)
WORKERS = 4
# Seconds to wait for what begins and ends a training, and for a round.
PATIENCE = 300.0
LONGEST = 60.0
KEYS = ("network", "scenario", "mode", "workers", "num_steps", "batch", "step_delay_s", "seed")


def measure(options: argparse.Namespace, results: Results) -> list[Row]:
    """Run what is not there yet; return the rows that were asked for."""
    common = {
        "workers": WORKERS,
        "num_steps": options.num_steps,
        "batch": options.batch,
        "step_delay_s": options.step_ms / 1e3,
        "seed": options.seed,
    }
    rounds = {"A": options.rounds_a, "B": options.rounds_b, NONE: options.rounds_a}
    scenarios = options.scenarios
    # So that a run that is interrupted has all modes of a network, if any.
    jobs = [{"network": n, "mode": m, **common} for n in options.networks for m in options.modes]
    with progress_bar() as bar:
        task = bar.add_task("training", total=sum(rounds[s] for s in scenarios) * len(jobs))
        for job in jobs:
            missing = [s for s in scenarios if results.find({**job, "scenario": s}) is None]
            bar.advance(task, sum(rounds[s] for s in scenarios if s not in missing))
            if not missing:
                continue
            bar.update(task, description=f"{job['network']}, {job['mode']}")
            name = f"training {job['network']} in mode {job['mode']}"
            with StrategyJob(name, job, WORKERS, 1, SCRIPT, {"PYTHONPATH": str(ROOT)}) as running:
                running.wait_ready()
                for scenario in missing:
                    wanted = {"scenario": scenario, "rounds": rounds[scenario]}
                    row = running.ask(wanted, PATIENCE + LONGEST * rounds[scenario])
                    results.add({**job, **row})
                    bar.advance(task, rounds[scenario])
    wanted_rows = [results.find({**job, "scenario": s}) for job in jobs for s in scenarios]
    return [row for row in wanted_rows if row is not None]


def over_ideal(row: Row) -> float:
    """Return the time of an iteration over the ideal one."""
    return float(row["s_per_iteration"] / row["ideal_s_per_iteration"])


def print_table(rows: Sequence[Row]) -> None:
    """Print what was measured."""
    console = Console()
    table = Table(title="an iteration; saved: of the baseline's time")
    columns = (
        "network",
        "scenario",
        "mode",
        "ms",
        "over ideal",
        "saved",
        "to 90 %",
        "CPU s",
        "diff",
    )
    for column in columns:
        table.add_column(column, justify="left" if column in columns[:3] else "right")
    base: dict[tuple[str, str], float] = {}
    for row in sorted(rows, key=lambda r: (r["network"], r["scenario"], MODES.index(r["mode"]))):
        seconds = row["s_per_iteration"]
        cell = (row["network"], row["scenario"])
        if row["mode"] == "baseline":
            base[cell] = seconds
        reached = row["s_to_accuracy"]
        table.add_row(
            *cell,
            row["mode"],
            f"{seconds * 1e3:.0f}",
            f"{over_ideal(row):.2f}",
            f"{1 - seconds / base[cell]:.0%}" if cell in base else "",
            "-" if reached is None else f"{reached:.1f} s",
            f"{row['cpu_s']:.1f}",
            f"{row['largest_difference']:.1e}",
        )
    console.print(table)
    console.print("diff: the largest difference of a final weight to training in one process")


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draw iteration times over the ideal, and accuracy over time."""
    networks = list(dict.fromkeys(row["network"] for row in rows))
    scenarios = [s for s in SCENARIOS if any(row["scenario"] == s for row in rows)]
    modes = [mode for mode in MODES if any(row["mode"] == mode for row in rows)]
    colors = dict(zip(MODES, COLORS, strict=False))
    width = 1 + len(scenarios)
    figure, axes = new_figure(len(networks), width)
    for number, network in enumerate(networks):
        bars, *curves = axes[width * number : width * (number + 1)]
        own = [row for row in rows if row["network"] == network]
        for row in own:
            at = scenarios.index(row["scenario"]) * (len(modes) + 1) + modes.index(row["mode"])
            bars.bar(at, over_ideal(row), color=colors[row["mode"]], width=0.9)
            seconds, accuracies = np.array(row["accuracy"]).T
            axis = curves[scenarios.index(row["scenario"])]
            axis.plot(seconds, accuracies, color=colors[row["mode"]], label=row["mode"])
        middle = (len(modes) - 1) / 2
        places = [middle + i * (len(modes) + 1) for i in range(len(scenarios))]
        bars.set_xticks(places, [f"scenario {s}" for s in scenarios])
        bars.axhline(1, color="black", linewidth=0.8, linestyle="--")
        bars.set(title=network, ylabel="iteration over the ideal")
        for scenario, axis in zip(scenarios, curves, strict=True):
            axis.set(title=f"{network}, scenario {scenario}", xlabel="seconds", ylabel="accuracy")
            axis.legend(frameon=False, fontsize=8)
    figure.savefig(path)


def some_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Return a function that reads a list with commas of known names."""

    def read(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
        return names

    return read


def main() -> int:
    """Run the experiment as the command line says; return the status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", type=some_of(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--modes", type=some_of(MODES), default=list(MODES))
    parser.add_argument("--scenarios", type=some_of(SCENARIOS), default=list(SCENARIOS[:2]))
    parser.add_argument("--num-steps", type=int, default=16, help="virtual replicas")
    parser.add_argument("--batch", type=int, default=96, help="images of a round")
    parser.add_argument("--step-ms", type=float, default=25.0, help="least time of a micro-step")
    parser.add_argument("--rounds-a", type=int, default=40, help="of A and none, a multiple of 10")
    parser.add_argument("--rounds-b", type=int, default=160, help="of scenario B")
    parser.add_argument("--seed", type=int, default=1, help="of scenario B")
    parser.add_argument("--json", type=Path, help="results; what is there is not measured again")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    for rounds in (options.rounds_a, options.rounds_b):
        if rounds < 20 or rounds % 10:
            parser.error(f"--rounds-a and --rounds-b are multiples of 10, from 20, not {rounds}")
    if options.num_steps < WORKERS or options.batch < options.num_steps or options.step_ms < 0:
        parser.error("a worker needs a step, a step an image, and --step-ms is not negative")
    try:
        results = Results(options.json, KEYS)
        rows = measure(options, results)
    except ValueError as error:
        parser.error(str(error))
    except CommandError as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 1
    print_table(rows)
    if options.plot is not None:
        plot(rows, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
