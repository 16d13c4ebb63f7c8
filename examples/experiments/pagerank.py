"""PageRank with stragglers: what moving steps and a faster network each save.

    python -m examples.experiments.pagerank --graphs web-Stanford --json FILE --plot FILE

Starts a cluster on this host for each graph and runs each mode in each scenario. A micro-step of a
worker of speed 1 takes about a fixed time, most of it waited for, so that four workers need not
have a processor each; slow workers take multiples of it. With ``--json`` an interrupted experiment
goes on with what is missing. `pagerank_program` is the program, `pagerank_chief` says what the
modes are.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from examples.experiments.graphs import (
    SIZES,
    Floats,
    GraphError,
    Partitions,
    check_graph,
    partitions_of,
)
from examples.experiments.pagerank_reference import reference
from examples.experiments.results import COLORS, Results, Row, new_figure, progress_bar
from tf_rdmabatch.bench.arguments import integer, list_of, names
from tf_rdmabatch.bench.cpu_time import processes_seconds
from tf_rdmabatch.bench.scenarios import SCENARIOS, ideal_seconds, make_scenario
from tf_rdmabatch.bench.strategy_job import StrategyJob
from tf_rdmabatch.cli import CommandError

ROOT = Path(__file__).resolve().parents[2]
MODES = ("baseline", "batched", "scheduling", "network", "dsana")
ITERATIONS = {"A": 16, "B": 50}
# The first whose scenario B has a slow period that starts and one that moves in so many iterations.
SEED = 6
# Of scenario A, before which steps find their workers: a mean of the rest is that of long runs.
SETTLING = 6
# Of a micro-step, what is computing and not waiting.
SHARE = 0.3
# Seconds to wait for a strategy, and for an iteration.
PATIENCE = 300.0
LONGEST = 60.0
KEYS = ("graph", "scenario", "mode", "workers", "num_steps", "seed", "iterations", "residual")


def measure(
    job: StrategyJob, calibration: dict[str, Any], wanted: Row, expected: Floats, folder: Path
) -> Row:
    """Run a mode in a scenario and return its row.

    Parameters
    ----------
    job
        The cluster, with the graph.
    calibration
        Of the cluster: what a micro-step takes.
    wanted
        What to run: the keys of the row.
    expected
        Ranks after as many iterations.
    folder
        Of files that the job writes.
    """
    ranks = folder / "ranks.npy"
    job.ask(wanted | {"ranks": str(ranks)}, PATIENCE)
    before = processes_seconds(job.processes)
    found = job.ask({}, wanted["iterations"] * LONGEST)
    cpu = processes_seconds(job.processes) - before
    scenario = make_scenario(wanted["scenario"], wanted["workers"], wanted["seed"])
    ideals = [
        ideal_seconds(scenario.factors(i), wanted["num_steps"], found["step_s"])
        for i in range(wanted["iterations"])
    ]
    seconds = found.pop("seconds")
    first = SETTLING if wanted["scenario"] == "A" and len(seconds) > 2 * SETTLING else 0
    quarters = statistics.quantiles(seconds[first:], n=4) if len(seconds) > 2 else [0.0] * 3
    residuals = found.pop("residuals")
    return (
        wanted
        | calibration
        | {
            "s_per_iteration": statistics.fmean(seconds[first:]),
            "ideal_s_per_iteration": statistics.fmean(ideals[first:]),
            "s_to_residual": time_to(wanted["residual"], seconds, residuals),
            "cpu_s": cpu,
            "runs": 1,
            "spread": (quarters[2] - quarters[0]) / statistics.median(seconds),
            "l1_error": float(np.abs(np.load(ranks) - expected).sum()),
            "last_residual": residuals[-1],
            "iteration_s": [round(s, 5) for s in seconds],
        }
        | found
    )


def time_to(residual: float, seconds: Sequence[float], residuals: Sequence[float]) -> float | None:
    """Return the time of all iterations until the residual was reached; None: it was not."""
    for count, reached in enumerate(residuals, 1):
        if reached <= residual:
            return sum(seconds[:count])
    return None


def run(options: argparse.Namespace, results: Results) -> None:
    """Run what is missing."""
    keys = {"workers": options.workers, "num_steps": options.steps, "seed": options.seed}
    rows = {
        graph: [
            {"graph": graph, "scenario": scenario, "mode": mode}
            | keys
            | {"iterations": options.iterations or ITERATIONS[scenario]}
            | {"residual": options.residual}
            for scenario in options.scenarios
            for mode in options.modes
        ]
        for graph in options.graphs
    }
    missing = {g: [w for w in wanted if results.find(w) is None] for g, wanted in rows.items()}
    with progress_bar() as bar:
        task = bar.add_task("", total=sum(len(wanted) for wanted in rows.values()))
        bar.advance(task, sum(len(rows[g]) - len(missing[g]) for g in rows))
        for graph in (g for g in options.graphs if missing[g]):
            bar.update(task, description=f"{graph}: preparing it")
            parts = partitions_of(graph, options.steps, options.cache)
            base = next((r["base_s"] for r in results.rows if _same(r, missing[graph][0])), None)
            bar.update(task, description=f"{graph}: starting a cluster")
            with started(parts, options.workers, base) as (job, calibration, folder):
                expected: dict[int, Floats] = {}
                for wanted in missing[graph]:
                    bar.update(task, description=f"{graph} {wanted['scenario']} {wanted['mode']}")
                    count = wanted["iterations"]
                    if count not in expected:
                        expected[count] = reference(parts, count)
                    results.add(measure(job, calibration, wanted, expected[count], folder))
                    bar.advance(task)


def _same(row: Row, wanted: Row) -> bool:
    """Return whether rows can be compared: their micro-steps take the same time."""
    return all(row.get(k) == wanted[k] for k in ("graph", "workers", "num_steps", "seed"))


@contextmanager
def started(
    parts: Partitions, workers: int, base: float | None
) -> Iterator[tuple[StrategyJob, dict[str, Any], Path]]:
    """Start a cluster for a graph; yield it, what a micro-step takes there, and a folder."""
    request = {"folder": str(parts.folder.absolute()), "base": base, "share": SHARE}
    script = ROOT / "examples" / "experiments" / "pagerank_chief.py"
    path = {"PYTHONPATH": str(ROOT)}
    with (
        tempfile.TemporaryDirectory() as folder,
        StrategyJob(f"PageRank of {parts.name}", request, workers, 1, script, path) as job,
    ):
        yield job, job.wait_ready(), Path(folder)


def print_table(rows: Sequence[Row]) -> None:
    """Show the rows, and what each mode saves of the baseline's time."""
    table = Table("graph", "scenario", "mode", title="PageRank")
    for title in ("s/iteration", "ideal", "over ideal", "saved", "s to residual", "CPU s", "L1"):
        table.add_column(title, justify="right")
    for row in rows:
        reached, saved = row["s_to_residual"], saved_time(row, rows)
        table.add_row(
            row["graph"],
            row["scenario"],
            row["mode"],
            f"{row['s_per_iteration']:.3f}",
            f"{row['ideal_s_per_iteration']:.3f}",
            f"{row['s_per_iteration'] / row['ideal_s_per_iteration']:.2f}",
            "" if saved is None else f"{saved:.1%}",
            "" if reached is None else f"{reached:.1f}",
            f"{row['cpu_s']:.0f}",
            f"{row['l1_error']:.0e}",
        )
    Console(width=None if sys.stdout.isatty() else 130).print(table)


def saved_time(row: Row, rows: Sequence[Row]) -> float | None:
    """Return the part of the baseline's time that a row's mode saves; None: no baseline."""
    for other in rows:
        same = all(other[key] == row[key] for key in KEYS if key != "mode")
        if same and other["mode"] == "baseline":
            return 1 - float(row["s_per_iteration"]) / float(other["s_per_iteration"])
    return None


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw the time of an iteration over the ideal, by scenario, graph and mode."""
    scenarios = [s for s in SCENARIOS if any(row["scenario"] == s for row in rows)]
    graphs = list(dict.fromkeys(row["graph"] for row in rows))
    modes = [mode for mode in MODES if any(row["mode"] == mode for row in rows)]
    figure, axes = new_figure(1, len(scenarios))
    width = 0.8 / len(modes)
    for scenario, one in zip(scenarios, axes, strict=True):
        for i, mode in enumerate(modes):
            bars = [r for r in rows if r["scenario"] == scenario and r["mode"] == mode]
            places = [graphs.index(row["graph"]) + (i + 0.5) * width - 0.4 for row in bars]
            heights = [row["s_per_iteration"] / row["ideal_s_per_iteration"] for row in bars]
            one.bar(places, heights, 0.9 * width, color=COLORS[i], label=mode)
        one.axhline(1, color="#555555", linewidth=0.8)
        one.set_xticks(range(len(graphs)), [Path(g).name for g in graphs], rotation=15)
        one.set_title(f"scenario {scenario}", loc="left")
    axes[0].set_ylabel("time of an iteration / ideal")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(modes), frameon=False)
    figure.savefig(path)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiment as the command line says, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.experiments.pagerank",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = ", ".join(SIZES)
    parser.add_argument(
        "--graphs",
        type=list_of(str),
        default=list(SIZES),
        help=f"comma-separated: paths of edge lists (.gz too), or {known}, which are generated",
    )
    parser.add_argument("--scenarios", type=names(tuple(SCENARIOS)), default=list(SCENARIOS))
    parser.add_argument("--modes", type=names(MODES), default=list(MODES))
    parser.add_argument("--workers", type=integer(2, 64), default=4, help="default: 4")
    parser.add_argument(
        "--steps", type=integer(2, 1024), default=16, help="partitions, micro-steps; default: 16"
    )
    parser.add_argument(
        "--iterations", type=integer(1, 100_000), help="default: 16 in scenario A, 50 in B"
    )
    parser.add_argument("--residual", type=float, default=1e-5, help="to reach; default: 1e-5")
    parser.add_argument(
        "--seed", type=integer(0, 1 << 30), default=SEED, help="of scenario B; default: %(default)s"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path.home() / ".cache" / "tf_rdmabatch" / "graphs",
        help="folder of graphs, which all workers read; default: %(default)s",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="rows, kept and completed")
    parser.add_argument("--plot", type=Path, metavar="FILE")
    options = parser.parse_args(argv)
    # Ends the cluster too; and a shell has commands in the background ignore interrupts.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    try:
        for path in (options.json, options.plot):
            if path is not None and not path.absolute().parent.is_dir():
                raise CommandError(f"there is no folder {path.absolute().parent}")
        for graph in options.graphs:
            check_graph(graph)
        for scenario in options.scenarios:
            make_scenario(scenario, options.workers, options.seed)
        results = Results(options.json, KEYS)
        run(options, results)
        print_table(results.rows)
        if options.plot is not None:
            draw(results.rows, options.plot)
    except (CommandError, GraphError, ValueError, OSError) as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
