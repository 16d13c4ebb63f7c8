"""Graphs of the PageRank experiment: generated, read, cut."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("scipy")

from examples.experiments.graphs import (
    GraphError,
    check_graph,
    generate,
    partition,
    partitions_of,
    read_edge_list,
)
from examples.experiments.pagerank import main, time_to
from examples.experiments.pagerank_reference import reference


def test_a_generated_graph_has_the_wanted_size() -> None:
    graph = generate("g", 1000, 20_000, seed=3)
    pairs = graph.sources * np.int64(1000) + graph.targets
    assert len(np.unique(pairs)) == len(pairs) == 20_000
    assert pairs.max() < 1000 * 1000
    again = generate("g", 1000, 20_000, seed=3)
    np.testing.assert_array_equal(again.sources, graph.sources)
    np.testing.assert_array_equal(again.targets, graph.targets)
    assert (generate("g", 1000, 20_000, seed=4).targets != graph.targets).any()
    # Few nodes have most of the edges.
    degrees = np.sort(graph.out_degrees)[::-1]
    assert degrees[:100].sum() > 0.3 * 20_000
    with pytest.raises(GraphError, match="cannot have 30 edges"):
        generate("g", 10, 30)


@pytest.mark.parametrize("compressed", [False, True])
def test_an_edge_list_of_snap(tmp_path: Path, compressed: bool) -> None:
    text = "# Directed graph\n# FromNodeId\tToNodeId\n7\t3\n3\t9\n7\t9\n7\t3\n"
    path = tmp_path / ("g.txt.gz" if compressed else "g.txt")
    path.write_bytes(gzip.compress(text.encode()) if compressed else text.encode())
    graph = read_edge_list(path)
    assert (graph.name, graph.nodes) == ("g", 3)
    edges = list(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True))
    assert edges == [(0, 2), (1, 0), (1, 2)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("g.txt", b"1 2 3\n", "two whole numbers a line"),
        ("g.txt", b"a b\n", "two whole numbers a line"),
        ("g.txt.gz", b"1 2\n", "cannot be read"),
        ("missing.txt", None, "cannot be read"),
    ],
)
def test_files_that_are_no_edge_lists(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(GraphError, match=message):
        read_edge_list(tmp_path / name)


def test_partitions_hold_each_edge_once(tmp_path: Path) -> None:
    graph = generate("g", 500, 6000)
    parts = partition(graph, 8, tmp_path)
    sizes = np.diff(parts.bounds)
    assert sizes.sum() == 6000
    # A node's edges stay together.
    assert sizes.max() - sizes.min() <= 2 * graph.out_degrees.max()
    found = set()
    for i in range(8):
        edges = slice(parts.bounds[i], parts.bounds[i + 1])
        sources = parts.sources[edges] + parts.ranges[i]
        assert ((sources >= parts.ranges[i]) & (sources < parts.ranges[i + 1])).all()
        assert (np.diff(parts.targets[edges]) >= 0).all()
        found |= set(zip(sources.tolist(), parts.targets[edges].tolist(), strict=True))
    assert found == set(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True))
    firsts = np.array([0, 100, 300])
    bounds = parts.piece_bounds(firsts)
    for i in range(8):
        for j, (low, high) in enumerate(((0, 100), (100, 300), (300, 500))):
            piece = parts.targets[bounds[i, j] : bounds[i, j + 1]]
            assert ((piece >= low) & (piece < high)).all()
    with pytest.raises(GraphError, match="too few for 501 parts"):
        partition(graph, 501, tmp_path)


def test_partitions_are_made_once(tmp_path: Path) -> None:
    path = tmp_path / "g.txt"
    path.write_text("0 1\n1 2\n2 0\n")
    first = partitions_of(str(path), 2, tmp_path / "cache")
    (first.folder / "targets.bin").touch()
    os.utime(first.folder / "targets.bin", (1, 1))
    again = partitions_of(str(path), 2, tmp_path / "cache")
    assert again == first
    assert (first.folder / "targets.bin").stat().st_mtime == 1
    path.write_text("0 1\n1 2\n2 0\n0 2\n")
    assert partitions_of(str(path), 2, tmp_path / "cache").edges == 4
    with pytest.raises(GraphError, match=r"'web-Stan' is neither a file nor one of web-Stanford"):
        check_graph("web-Stan")


def test_the_reference_is_a_fixed_point(tmp_path: Path) -> None:
    parts = partition(generate("g", 300, 2000), 4, tmp_path)
    ranks = reference(parts, 200)
    assert ranks.sum() == pytest.approx(1)
    np.testing.assert_allclose(reference(parts, 201), ranks, rtol=1e-9)


def test_time_to_a_residual() -> None:
    assert time_to(0.1, [1.0, 2.0, 4.0], [0.5, 0.1, 0.05]) == 3
    assert time_to(0.01, [1.0, 2.0], [0.5, 0.1]) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--graphs", "web-Nowhere"], "neither a file nor one of"),
        (["--json", "/nowhere/x.json"], "there is no folder /nowhere"),
    ],
)
def test_bad_input_gets_one_error(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
