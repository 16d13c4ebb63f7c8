"""Benchmarks: ``tf-rdmabatch bench``.

``bench engine``: `engine_command` takes the command line, `cases` says what is measured, `tasks`
how a case is laid out over processes, `measure` runs them, `figures` turns counts into figures,
`report` shows them. The loops that are measured are C++ (``cc/bench``): each process runs `task`.

``bench strategy``: `strategy_command`, `strategy_cases`, `strategy_measure` and `strategy_report`
are the same for training steps; `strategy_job` starts what is measured, ``strategy/bench``.
"""

from __future__ import annotations

import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the benchmarks to the command ``bench``."""
    # A process of a benchmark imports this package, and needs none of that.
    from tf_rdmabatch.bench import engine_command, strategy_command  # noqa: PLC0415

    benchmarks = parser.add_subparsers(metavar="benchmark", required=True)
    summary = "batched against one-by-one confirmation, over every transport that can run here"
    engine = benchmarks.add_parser("engine", help=summary, description=summary.capitalize() + ".")
    engine_command.configure(engine)
    summary = "training steps against TensorFlow's own parameter servers over gRPC"
    description = f"Measures {summary}."
    strategy = benchmarks.add_parser("strategy", help=summary, description=description)
    strategy_command.configure(strategy)
