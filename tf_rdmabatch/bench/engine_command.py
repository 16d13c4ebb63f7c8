"""The command ``tf-rdmabatch bench engine``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tf_rdmabatch import _core
from tf_rdmabatch.bench.arguments import (
    address,
    integer,
    list_of,
    multiple,
    names,
    seconds,
    size_in_bytes,
)
from tf_rdmabatch.bench.cases import (
    ELEMENT_BYTES,
    PATTERNS,
    PEER_PATTERNS,
    STORE_PATTERNS,
    Case,
    Tuning,
)
from tf_rdmabatch.bench.figures import row_of
from tf_rdmabatch.bench.measure import run_all, run_case
from tf_rdmabatch.bench.processes import ProcessPool
from tf_rdmabatch.bench.report import (
    format_bytes,
    print_table,
    require_matplotlib,
    write_json,
    write_plot,
)
from tf_rdmabatch.cli import CommandError

CONFIRMS = ("batch", "each")
TRANSPORTS = ("shm", "verbs", "tcp")
IDLE_SECONDS = 10.0
MAX_PEERS = 1024

EPILOG = """\
Each task is a process of its own; more than 8 peers are played by 8 processes, each with several
connections. Every process counts the same interval. CPU time is that of all of them; doorbells,
completions and acks are summed over both sides. A message is, in push, pull and push-pull, a
parameter pushed or pulled, and --bytes is the size of all parameters together. Latency is half a
round trip of a lone message; in push, pull, push-pull and memcpy it is the time of one whole round.
GB/s counts payload once for each message: push and pull both count. In push the server adds every
block that comes, and there are no rounds. A row of memcpy stands under each transport.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    several = parser.add_argument_group("what to measure (comma-separated lists)")
    several.add_argument(
        "--transport", type=names(TRANSPORTS), help="default: every one that can run here"
    )
    several.add_argument(
        "--pattern", type=names(PATTERNS), help=f"of {', '.join(PATTERNS)}; default: all but idle"
    )
    several.add_argument(
        "--bytes",
        type=list_of(size_in_bytes),
        help="sizes, such as 64,4KiB,4MiB; default: 64 bytes to 4 MiB",
    )
    several.add_argument("--confirm", type=names(CONFIRMS), help="default: batch,each")
    several.add_argument(
        "--peers",
        type=list_of(integer(1, MAX_PEERS)),
        help="of many-to-one, one-to-many and ring; default: 4",
    )
    store = parser.add_argument_group("the pattern push-pull")
    store.add_argument("--workers", type=integer(1, 64), default=2, help="default: 2")
    store.add_argument("--servers", type=integer(1, 64), default=1, help="default: 1")
    store.add_argument(
        "--parameters",
        type=integer(1, 100_000),
        default=160,
        help="that --bytes is cut into; default: 160",
    )
    how = parser.add_argument_group("how")
    how.add_argument(
        "--repeats", type=integer(1, 1000), help="runs of each row, taken in turn; default: 3"
    )
    how.add_argument("--seconds", type=seconds, help="of each run; default: 0.5 (idle: 10)")
    how.add_argument("--quick", action="store_true", help="few sizes, peers and runs, short ones")
    how.add_argument(
        "--cpu",
        choices=("processes", "machine"),
        default="processes",
        help="whose CPU time: a software device works outside of the processes",
    )
    how.add_argument(
        "--address", type=address, default="127.0.0.1", help="to listen at; default: 127.0.0.1"
    )
    engine = parser.add_argument_group("the engine")
    engine.add_argument(
        "--window",
        type=integer(0, 4096),
        default=0,
        help="confirm each: messages that wait for their acknowledgement; 0 (default): all slots",
    )
    engine.add_argument("--queue-pairs", type=integer(1, 16), default=1, help="default: 1")
    engine.add_argument(
        "--slots", type=multiple(64, 64, 4096), default=64, help="a multiple of 64; default: 64"
    )
    engine.add_argument(
        "--slot-bytes",
        type=multiple(64, 256, 16 << 20),
        help="a multiple of 64; default: by the size of the messages",
    )
    output = parser.add_argument_group("output")
    output.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    output.add_argument("--plot", type=Path, metavar="FILE", help="draw them here (PNG)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure, print the table, write the files."""
    for path in (options.json, options.plot):
        if path is not None and not path.absolute().parent.is_dir():
            raise CommandError(f"there is no folder {path.absolute().parent}", status=2)
    if options.plot is not None:
        require_matplotlib()
    console = Console(stderr=True)
    transports = _usable(options.transport, console)
    groups = _cases(options, transports)
    repeats = options.repeats or (1 if options.quick else 3)
    runs: dict[Case, list[dict[str, float | None]]] = {c: [] for group in groups for c in group}

    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with ProcessPool() as pool, progress:
        bar = progress.add_task("", total=repeats * len(runs))

        def run_one(case: Case) -> dict[str, float | None]:
            progress.update(bar, description=_describe(case))
            return run_case(
                pool,
                case,
                _seconds_of(case, options),
                options.address,
                machine_cpu=options.cpu == "machine",
            )

        for case, figures in run_all(groups, repeats, run_one):
            runs[case].append(figures)
            progress.advance(bar)

    rows = [row_of(case, figures) for case, figures in runs.items()]
    width = None if sys.stdout.isatty() else 200
    print_table(rows, Console(width=width))
    if options.json is not None:
        write_json(rows, options.json)
    if options.plot is not None:
        write_plot(rows, options.plot)
    return 0


def _usable(wanted: list[str] | None, console: Console) -> list[str]:
    """Return the transports that can run here; say of the others why not."""
    usable = []
    reasons = []
    present = {name: (ok, reason) for name, ok, reason in _core.transports()}
    for name in wanted or TRANSPORTS:
        ok, reason = present.get(name, (False, "this build does not have it"))
        if ok:
            usable.append(name)
        else:
            reasons.append(f"{name} is left out: {reason}")
    if not usable:
        raise CommandError("; ".join(reasons))
    for reason in reasons:
        console.print(reason, highlight=False, soft_wrap=True)
    return usable


def _cases(options: argparse.Namespace, transports: list[str]) -> list[list[Case]]:
    """Return groups of cases that run in turn: one for each transport and size."""
    quick = options.quick
    patterns = options.pattern or [p for p in PATTERNS if p != "idle"]
    sizes = options.bytes or (
        [64, 4096, 1 << 20] if quick else [64, 512, 4096, 32 << 10, 256 << 10, 1 << 20, 4 << 20]
    )
    tuning = Tuning(options.slots, options.slot_bytes, options.queue_pairs, options.window)
    peer_counts = options.peers or ([2] if quick else [4])
    groups = []
    for transport in transports:
        for size in sizes:
            group = []
            for pattern in patterns:
                if pattern == "idle" and size != sizes[0]:
                    continue  # no message has a size
                if pattern in STORE_PATTERNS and size < ELEMENT_BYTES:
                    raise CommandError(f"{pattern} needs --bytes of at least 4", status=2)
                for peers in peer_counts if pattern in PEER_PATTERNS else [None]:
                    group += _both(options, tuning, transport, pattern, size, peers)
            groups.append(group)
    return groups


def _both(
    options: argparse.Namespace,
    tuning: Tuning,
    transport: str,
    pattern: str,
    size: int,
    peers: int | None,
) -> list[Case]:
    """Return the case of each mode; what no message is sent for has one mode alone."""
    if pattern == "ring" and peers == 1:
        raise CommandError("a ring needs --peers of at least 2", status=2)
    confirms = options.confirm or list(CONFIRMS)
    more: dict[str, Any] = {}
    if pattern == "push-pull":
        peers = options.workers
        more = {
            "servers": options.servers,
            "parameters": min(options.parameters, size // ELEMENT_BYTES),
        }
    if pattern == "memcpy":
        confirms = confirms[:1]
    return [
        Case(transport, pattern, confirm, size, peers=peers or 1, tuning=tuning, **more)
        for confirm in confirms
    ]


def _seconds_of(case: Case, options: argparse.Namespace) -> float:
    if options.seconds is not None:
        return float(options.seconds)
    if case.pattern == "idle":
        return 1.0 if options.quick else IDLE_SECONDS
    return 0.1 if options.quick else 0.5


def _describe(case: Case) -> str:
    return f"{case.transport} {case.pattern} {format_bytes(case.bytes)} {case.confirm}"
