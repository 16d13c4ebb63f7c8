"""The role of a process that ``srun`` started, from its environment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tf_rdmabatch.cli import CommandError
from tf_rdmabatch.launch.cluster import Task, lay_out
from tf_rdmabatch.launch.nodelist import expand_counts, expand_nodes, expand_ports

# Where no ports are given: jobs that share a node mostly get others, below those that systems
# give to connections.
_FIRST_PORT = 10000
_PORTS = 64
_RANGES = 320


def is_step(environment: Mapping[str, str]) -> bool:
    """Return whether ``srun`` started this process and others. A batch script is started alone."""
    return (
        "SLURM_STEP_NODELIST" in environment
        and "SLURM_PROCID" in environment
        and environment.get("SLURM_STEP_NUM_TASKS", "1") != "1"
    )


def task_of(environment: Mapping[str, str], workers: int | None, ps: int, port: int | None) -> Task:
    """Return the task that this process is.

    The first process is the chief; parameter servers go round the nodes; the others are workers.

    Parameters
    ----------
    environment
        As ``srun`` sets it.
    workers
        How many there have to be; None is all that are left.
    ps
        Parameter servers.
    port
        The first of a node's tasks; others have the next. None takes those that Slurm has
        reserved, or else some by the job's number.

    Raises
    ------
    CommandError
        Status 2: the environment does not fit together, or has too few tasks.
    """
    try:
        rank = int(environment["SLURM_PROCID"])
        count = int(environment["SLURM_STEP_NUM_TASKS"])
        nodes = expand_nodes(environment["SLURM_STEP_NODELIST"])
        counts = expand_counts(environment["SLURM_STEP_TASKS_PER_NODE"])
        own_node = int(environment["SLURM_NODEID"])
        numbers = _numbers(environment, max(counts), port)
    except (KeyError, ValueError) as error:
        raise CommandError(
            f"the environment is not that of a step which srun started: {error}", status=2
        ) from error
    if len(nodes) != len(counts) or sum(counts) != count or not 0 <= rank < count:
        raise CommandError(
            f"Slurm's variables contradict each other: {len(nodes)} nodes with {counts} tasks, "
            f"{count} in all",
            status=2,
        )
    wanted = f"--ps {ps}" + ("" if workers is None else f" and --workers {workers}")
    left = count - 1 - ps
    if left < 1 or workers not in (None, left):
        raise CommandError(
            f"srun has started {count} tasks, which are a chief, {ps} ps and {max(left, 0)} "
            f"workers: that does not fit {wanted}; change srun --ntasks",
            status=2,
        )
    node_of = _nodes_of(counts, environment.get("SLURM_DISTRIBUTION", "block"))
    if node_of[rank] != own_node:
        raise CommandError(
            f"task {rank} runs on node {own_node} of the step, and the others take it to be on "
            f"{node_of[rank]}: start the step with srun --distribution=block or cyclic",
            status=2,
        )
    jobs = _jobs(node_of, ps)
    ports = [numbers[node_of[:i].count(node)] for i, node in enumerate(node_of)]
    places = [(jobs[i], nodes[node_of[i]]) for i in range(count)]
    return lay_out(places, ports)[rank]


def _nodes_of(counts: Sequence[int], distribution: str) -> list[int]:
    """Return the node of each task."""
    if re.split("[:,]", distribution)[0] != "cyclic":
        return [node for node, count in enumerate(counts) for _ in range(count)]
    return [node for i in range(max(counts)) for node, count in enumerate(counts) if i < count]


def _jobs(node_of: Sequence[int], ps: int) -> list[str]:
    """Return the job of each task, with the parameter servers going round the nodes."""
    jobs = ["chief"] + ["worker"] * (len(node_of) - 1)
    free: dict[int, list[int]] = {node: [] for node in sorted(set(node_of))}
    for i, node in list(enumerate(node_of))[1:]:
        free[node].append(i)
    # One of each node, then another of each.
    turns = [own[i] for i in range(len(node_of)) for own in free.values() if i < len(own)]
    for i in turns[:ps]:
        jobs[i] = "ps"
    return jobs


def _numbers(environment: Mapping[str, str], needed: int, port: int | None) -> Sequence[int]:
    """Return the ports that the tasks of a node take, one after another."""
    reserved = environment.get("SLURM_STEP_RESV_PORTS")
    if port is None and reserved:
        ports = expand_ports(reserved)
        if len(ports) < needed:
            raise CommandError(
                f"Slurm has reserved {len(ports)} ports, and a node has {needed} tasks: srun "
                f"--resv-ports={needed}, or --port",
                status=2,
            )
        return ports
    if port is None:
        port = _FIRST_PORT + _PORTS * (int(environment["SLURM_JOB_ID"]) % _RANGES)
    return range(port, port + needed)
