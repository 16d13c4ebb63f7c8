"""Graphs for PageRank: read from edge lists or generated, and cut into partitions on disk."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

# Nodes and edges of graphs of SNAP (J. Leskovec and A. Krevl, SNAP Datasets: Stanford Large Network
# Dataset Collection, 2014), of soc-LiveJournal1 a quarter.
SIZES = {
    "web-Stanford": (281_903, 2_312_497),
    "web-Google": (875_713, 5_105_039),
    "web-BerkStan": (685_230, 7_600_595),
    "soc-LiveJournal1": (1_211_892, 17_248_443),
}
# Probabilities that an edge falls into the four quarters of the adjacency matrix, and of each
# quarter's quarters: R-MAT (D. Chakrabarti, Y. Zhan and C. Faloutsos, R-MAT: A Recursive Model for
# Graph Mining, SDM 2004), with the values that the Graph500 benchmark uses.
RMAT = (0.57, 0.19, 0.19, 0.05)
_CHUNK = 1 << 22


class GraphError(ValueError):
    """A graph cannot be read; the message says why."""


@dataclass
class Graph:
    """A directed graph without double edges.

    Parameters
    ----------
    name
        For people.
    nodes
        Their number.
    sources, targets
        Of each edge, int32, shape (edges,).
    """

    name: str
    nodes: int
    sources: Integers
    targets: Integers

    @property
    def out_degrees(self) -> npt.NDArray[np.int64]:
        """Edges that leave each node, shape (nodes,)."""
        return np.bincount(self.sources, minlength=self.nodes)


def generate(name: str, nodes: int, edges: int, seed: int = 1) -> Graph:
    """Return an R-MAT graph with exactly so many nodes and different edges.

    Some of the nodes may have no edge.

    Raises
    ------
    GraphError
        There are too few pairs of nodes for so many edges.
    """
    if nodes < 2 or not 1 <= edges <= nodes * nodes // 4:
        raise GraphError(f"{nodes} nodes cannot have {edges} edges: at most a quarter of all pairs")
    random = np.random.default_rng(seed)
    known = np.zeros(0, np.int64)
    gain = 1.0  # new edges of each that was drawn last
    while known.size < edges:
        wanted = int(1.2 * (edges - known.size) / max(gain, 0.05)) + 1024
        chunks = [min(_CHUNK, wanted - first) for first in range(0, wanted, _CHUNK)]
        drawn = [_rmat_pairs(nodes, count, random) for count in chunks]
        more = np.unique(np.concatenate([known, *drawn]))
        gain = (more.size - known.size) / wanted
        known = more
    # What is drawn late is not rarer for being left out.
    kept = np.sort(random.permutation(known.size)[:edges])
    pairs = known[kept]
    sources, targets = (part.astype(np.int32) for part in np.divmod(pairs, nodes))
    return Graph(name, nodes, sources, targets)


def _rmat_pairs(nodes: int, count: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return about `count` random edges, each as source x nodes + target."""
    a, b, c, _ = RMAT
    sources = np.zeros(count, np.int32)
    targets = np.zeros(count, np.int32)
    for _ in range((nodes - 1).bit_length()):
        draw = random.random(count, np.float32)
        lower = draw >= a + b
        right = ((draw >= a) & ~lower) | (draw >= a + b + c)
        sources = 2 * sources + lower
        targets = 2 * targets + right
    inside = (sources < nodes) & (targets < nodes)
    return sources[inside] * np.int64(nodes) + targets[inside]


def read_edge_list(path: Path) -> Graph:
    """Return the graph of an edge list as SNAP has them, plain or compressed with gzip.

    Each line has the numbers of a source and a target; lines that begin with ``#`` are comments.
    Nodes are renumbered from 0 in the order of their numbers.

    Raises
    ------
    GraphError
        There is no such file, or it is no edge list.
    """
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            pairs = np.loadtxt(file, np.int64, comments="#", ndmin=2)
    except (OSError, EOFError, zlib.error) as error:
        raise GraphError(f"{path} cannot be read: {error}") from error
    except ValueError as error:
        raise GraphError(
            f"{path} is no edge list: two whole numbers a line are wanted, and # begins a comment "
            f"({error})"
        ) from error
    if pairs.shape[1] != 2 or not pairs.size:
        raise GraphError(f"{path} is no edge list: two whole numbers a line are wanted")
    known, numbers = np.unique(pairs, return_inverse=True)
    sources, targets = numbers.reshape(pairs.shape).T
    edges = np.unique(sources.astype(np.int64) * known.size + targets)
    sources, targets = np.divmod(edges, known.size)
    name = path.name.removesuffix(".gz").removesuffix(".txt")
    return Graph(name, int(known.size), sources.astype(np.int32), targets.astype(np.int32))


@dataclass(frozen=True)
class Partitions:
    """A graph's edges in files that all workers read, cut into parts with about as many edges.

    A part has the edges of a range of sources, ordered by their targets. `sources.bin` (int32,
    counted from the range's first) and `targets.bin` (int32) hold the parts one after the other,
    `inverse.bin` (float64) one over each node's out-degree. They are raw and of the machine's byte
    order, so that they can be mapped into memory.

    Parameters
    ----------
    folder
        Of the files.
    name, nodes, edges
        Of the graph.
    ranges
        Part i has the sources from ``ranges[i]`` to before ``ranges[i + 1]``.
    bounds
        And the edges from ``bounds[i]`` to before ``bounds[i + 1]``.
    """

    folder: Path
    name: str
    nodes: int
    edges: int
    ranges: tuple[int, ...]
    bounds: tuple[int, ...]

    @property
    def sources(self) -> Integers:
        """The file, mapped."""
        return np.memmap(self.folder / "sources.bin", np.int32, "r")

    @property
    def targets(self) -> Integers:
        """The file, mapped."""
        return np.memmap(self.folder / "targets.bin", np.int32, "r")

    @property
    def inverse(self) -> Floats:
        """The file, mapped."""
        return np.memmap(self.folder / "inverse.bin", np.float64, "r")

    def piece_bounds(self, firsts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return where each part's edges to ranges of targets begin, and where the last ones end.

        Parameters
        ----------
        firsts
            First target of each range, shape (pieces,), ascending from 0.

        Returns
        -------
        np.ndarray
            Shape (parts, pieces + 1).
        """
        targets = self.targets
        rows = []
        for begin, end in zip(self.bounds[:-1], self.bounds[1:], strict=True):
            found = np.searchsorted(targets[begin:end], firsts)
            rows.append(np.append(begin + found, end))
        return np.stack(rows).astype(np.int64)


def partition(graph: Graph, parts: int, folder: Path) -> Partitions:
    """Cut a graph into parts with about as many edges and write them into a folder.

    Raises
    ------
    GraphError
        It has fewer nodes than that.
    """
    if graph.nodes < parts:
        raise GraphError(f"{graph.name} has {graph.nodes} nodes: too few for {parts} parts")
    degrees = graph.out_degrees
    before = np.concatenate([[0], np.cumsum(degrees)])
    wanted = np.arange(parts + 1) * len(graph.sources) / parts
    ranges = np.searchsorted(before, wanted)
    ranges[0], ranges[-1] = 0, graph.nodes
    part_of = np.searchsorted(ranges, np.arange(graph.nodes), side="right") - 1
    order = np.argsort(part_of[graph.sources] * np.int64(graph.nodes) + graph.targets)
    sources = graph.sources[order]
    first = ranges[part_of[sources]]
    folder.mkdir(parents=True, exist_ok=True)
    (sources - first).astype(np.int32).tofile(folder / "sources.bin")
    graph.targets[order].tofile(folder / "targets.bin")
    inverse = np.divide(1.0, degrees, out=np.zeros(graph.nodes), where=degrees > 0)
    inverse.tofile(folder / "inverse.bin")
    result = Partitions(
        folder,
        graph.name,
        graph.nodes,
        len(sources),
        tuple(ranges.tolist()),
        tuple(before[ranges].tolist()),
    )
    # Last: a folder with it is complete.
    (folder / "graph.json").write_text(json.dumps(asdict(result), default=str), encoding="utf-8")
    return result


def load_partitions(folder: Path) -> Partitions | None:
    """Return what `partition` wrote into a folder, or None where it is not there."""
    try:
        values = json.loads((folder / "graph.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    tuples = {key: tuple(values[key]) for key in ("ranges", "bounds")}
    return Partitions(**(values | tuples | {"folder": folder}))


def check_graph(name: str) -> None:
    """Raise a GraphError where a name is neither one of `SIZES` nor a file's."""
    if name not in SIZES and not Path(name).is_file():
        known = ", ".join(SIZES)
        raise GraphError(f"the graph {name!r} is neither a file nor one of {known}")


def partitions_of(name: str, parts: int, cache: Path, seed: int = 1) -> Partitions:
    """Return a graph's partitions, which are made where the cache does not have them.

    Parameters
    ----------
    name
        One of `SIZES`, which is generated, or the path of an edge list.
    parts
        Their number.
    cache
        Folder of what was made before.
    seed
        Of generated graphs.

    Raises
    ------
    GraphError
        There is no such graph.
    """
    check_graph(name)
    path = Path(name)
    key = f"{name}-seed{seed}"
    if name not in SIZES:
        # Another file of this name is another graph.
        key = f"{path.name}-{path.stat().st_size}-{path.stat().st_mtime_ns}"
    folder = cache / f"{key}-{parts}"
    ready = load_partitions(folder)
    if ready is not None:
        return ready
    graph = generate(name, *SIZES[name], seed) if name in SIZES else read_edge_list(path)
    return partition(graph, parts, folder)
