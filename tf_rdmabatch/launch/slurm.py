"""The role of a process that ``srun`` started, from its environment."""

from __future__ import annotations

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
    node_of = [node for node, tasks in enumerate(counts) for _ in range(tasks)]
    if node_of[rank] != own_node:
        raise CommandError(
            f"task {rank} runs on node {own_node} of the step, and on {node_of[rank]} if tasks "
            "fill one node after another, as they have to here: srun --distribution=block",
            status=2,
        )
    jobs = _jobs(counts, ps)
    ports = [numbers[i - node_of.index(node)] for i, node in enumerate(node_of)]
    places = [(jobs[i], nodes[node_of[i]]) for i in range(count)]
    return lay_out(places, ports)[rank]


def _jobs(counts: Sequence[int], ps: int) -> list[str]:
    """Return the job of each task, with the parameter servers going round the nodes."""
    jobs = ["worker"] * sum(counts)
    jobs[0] = "chief"
    first = [sum(counts[:node]) for node in range(len(counts))]
    free = [[first[n] + i for i in range(c) if first[n] + i] for n, c in enumerate(counts)]
    node = 0
    for _ in range(ps):
        while not free[node % len(free)]:
            node += 1
        jobs[free[node % len(free)].pop(0)] = "ps"
        node += 1
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
