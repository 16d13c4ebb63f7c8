"""The command ``tf-rdmabatch bench strategy``."""

from __future__ import annotations

import argparse
import importlib.util
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tf_rdmabatch.bench.arguments import integer, names, seconds
from tf_rdmabatch.bench.report import require_matplotlib, write_json
from tf_rdmabatch.bench.strategy_cases import SYSTEMS, TRACE, TRACED_WORKERS, WORKS, Work
from tf_rdmabatch.bench.strategy_measure import QUIET_LOAD, Setting, measure_work, trace_work
from tf_rdmabatch.bench.strategy_report import print_tables, write_plot
from tf_rdmabatch.cli import CommandError
from tf_rdmabatch.transports import as_rules

_EPILOG = """\
works:
{works}

A worker's step reads each variable once and subtracts a gradient of the same size from it; but for
the networks the gradient is the variable times a number. tf_rdmabatch is synchronous: a round is a
step on each worker and counts once for each, and a tf.function runs several rounds (as with
steps_per_execution). stock is tf.distribute.ParameterServerStrategy over gRPC, asynchronous, with
the steps scheduled by a ClusterCoordinator ahead of time. Each task is a process on this host
(workers, servers and the chief). Both jobs exist at the same time and run in turn. GB/s counts what
is pulled and pushed, CPU time is that of all processes of the job, others is what all other
processes took meanwhile, in cores. Figures are medians of the quiet runs (others below {quiet:g});
of all, where none was quiet. Under faster and CPU stand steps/s and CPU time against stock's. A
network's training also runs without communication, and its communication without the network: what
both take more than the round was hidden.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    width = max(len(name) for name in WORKS)
    works = "\n".join(f"  {work.name:{width}}  {work.summary}" for work in WORKS.values())
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG.format(works=works, quiet=QUIET_LOAD)
    selected = [work.name for work in WORKS.values() if work.selected]
    parser.add_argument(
        "--work",
        type=names(tuple(WORKS)),
        default=selected,
        help=f"comma-separated, of those below; default: {','.join(selected)}",
    )
    parser.add_argument(
        "--system", type=names(SYSTEMS), default=list(SYSTEMS), help="default: tf_rdmabatch,stock"
    )
    parser.add_argument("--workers", type=integer(1, 64), default=2, help="default: 2")
    parser.add_argument("--servers", type=integer(1, 64), default=1, help="default: 1")
    parser.add_argument(
        "--repeat", type=integer(1, 1000), default=3, help="runs of each system; default: 3"
    )
    parser.add_argument(
        "--seconds", type=seconds, default=3.0, help="of each run, about; default: 3"
    )
    parser.add_argument(
        "--transport",
        type=_transport,
        default="auto",
        help="of tf_rdmabatch's connections: a name, or rules (ps:1=shm,*=auto); default: auto",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw them here (PNG)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure, print the table, write the files."""
    if importlib.util.find_spec("tensorflow") is None:
        raise CommandError(
            "bench strategy needs TensorFlow: pip install 'tf-rdmabatch[tensorflow]', or "
            "'tf-rdmabatch[tensorflow-cpu]'"
        )
    for path in (options.json, options.plot):
        if path is not None and not path.absolute().parent.is_dir():
            raise CommandError(f"there is no folder {path.absolute().parent}", status=2)
    if options.plot is not None:
        require_matplotlib()
    setting = Setting(
        options.system,
        options.workers,
        options.servers,
        options.repeat,
        options.seconds,
        options.transport,
    )
    # Ends the jobs too.
    signal.signal(signal.SIGTERM, _exit)
    rows = _measure([WORKS[name] for name in options.work], setting)
    print_tables(rows, Console(width=None if sys.stdout.isatty() else 200))
    if options.json is not None:
        write_json(rows, options.json)
    if options.plot is not None:
        write_plot(rows, options.plot)
    return 0


def _transport(text: str) -> str:
    try:
        return as_rules(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _exit(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


def _measure(works: list[Work], setting: Setting) -> list[dict[str, Any]]:
    console = Console(stderr=True)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    # A start and the runs of each work.
    runs = 1 + setting.repeat * len(setting.systems)
    steps = [len(TRACED_WORKERS) if work.name == TRACE else runs for work in works]
    rows = []
    with progress:
        bar = progress.add_task("", total=sum(steps))
        begun = -1

        def advance(what: str) -> None:
            nonlocal begun
            begun += 1
            progress.update(bar, description=what, completed=begun)

        for work in works:
            if work.name == TRACE:
                rows += trace_work(work, TRACED_WORKERS, setting.servers, advance)
            else:
                rows += measure_work(work, setting, advance)
    return rows
