"""The simulation: against cases computed by hand, and against what no system can do."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from examples.experiments.clusters import CLUSTERS, Cluster, lasting_speeds, slowdowns
from examples.experiments.results import Results
from examples.experiments.round_model import (
    Costs,
    Reallocating,
    Resizing,
    Static,
    pushed,
    shortest_round,
    simulate,
)
from examples.experiments.scale import SYSTEMS, costs_of, main, simulated, wanted_rows

ALONE = Costs(1.0)


def rounds_of(*rows: list[float]) -> np.ndarray:
    return np.array(rows, np.float64)


def test_servers_take_pushes_one_after_the_other() -> None:
    costs = Costs(1.0, push=2.0, service=1.0)
    # The second comes while the first is served; the third is alone, and its own link takes longer.
    assert pushed(np.array([10.5, 10.0, 20.0]), costs).tolist() == [12.5, 12.0, 22.0]
    costs = Costs(1.0, push=1.0, service=1.0)
    assert pushed(np.array([0.5, 0.0, 0.2, 9.0]), costs).tolist() == [3.0, 1.0, 2.0, 10.0]


def test_a_round_lasts_until_the_slowest_has_pushed() -> None:
    costs = Costs(2.0, pull=1.0, push=0.5, service=0.0, fixed=0.25)
    outcome = simulate(Static(4, 2), 4, rounds_of([1, 3], [1, 1]), costs)
    assert outcome.seconds.tolist() == [1 + 12 + 0.5 + 0.25, 1 + 4 + 0.5 + 0.25]
    # 4 steps of workers that do 1/2 and 1/6 of one a second.
    assert outcome.bound.tolist() == pytest.approx([1 + 6 + 0.75, 1 + 4 + 0.75])
    assert outcome.over_bound == pytest.approx(19.5 / 13.5)


def test_dropped_workers_are_late_until_they_have_ended() -> None:
    # One of three is dropped. The last is busy with the first round's step until 5, when the others
    # have ended their fifth; it ends the sixth with the first, the second being slow.
    rows = [[1.0, 1, 5]] + [[1.0, 1, 1]] * 4 + [[1.0, 9, 1]]
    outcome = simulate(Static(3, 3, dropped=0.3), 3, rounds_of(*rows), ALONE)
    assert outcome.seconds.tolist() == [1, 1, 1, 1, 1, 1]
    assert outcome.lost == pytest.approx(1 / 3)
    late = [[1.0, 1, 5], [1.0, 9, 1]]
    assert simulate(Static(3, 3, dropped=0.3), 3, rounds_of(*late), ALONE).seconds.tolist() == [
        1,
        5,
    ]


def test_resizing_ends_all_at_once_as_soon_as_it_knows() -> None:
    system = Resizing(6, 2)
    outcome = simulate(system, 6, rounds_of([1, 2], [1, 2]), ALONE)
    assert outcome.seconds.tolist() == pytest.approx([6, 4])
    assert system.shares.tolist() == pytest.approx([4, 2])
    assert outcome.moved == pytest.approx(1)
    assert outcome.bound.tolist() == pytest.approx([4, 4])


def test_reallocating_is_the_step_allocator() -> None:
    system = Reallocating(8, 2)
    outcome = simulate(system, 8, rounds_of(*[[1.0, 3]] * 6), ALONE)
    assert outcome.seconds.tolist() == [12, 12, 12, 6, 6, 6]
    assert system.shares.tolist() == [6, 2]
    assert outcome.moved == 2


def test_the_servers_bound_a_round_too() -> None:
    costs = Costs(1.0, pull=1.0, push=1.0, service=1.0, fixed=0.5)
    assert shortest_round(8, np.ones(8), costs) == pytest.approx(1 + 8 + 0.5)
    assert shortest_round(80, np.ones(8), costs) == pytest.approx(1 + 10 + 1 + 0.5)


def test_a_network_is_as_fast_as_its_narrowest_part() -> None:
    rates = {"megabytes": 100.0, "worker_rate": 50.0, "server_rate": 25.0, "fixed": 0.0}
    alone = Costs.of_network(1.0, 1, 4, **rates)
    assert (alone.pull, alone.push, alone.service) == (2.0, 2.0, 1.0)
    assert Costs.of_network(1.0, 10, 4, **rates).pull == 10.0
    assert Costs.of_network(1.0, 1, 1, **rates).push == 4.0


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_nothing_is_faster_than_the_bound(cluster: str, system: str) -> None:
    workers, steps = 32, 128
    for seed in range(3):
        factors = CLUSTERS[cluster].factors(40, workers, np.random.default_rng(seed))
        for costs in (ALONE, costs_of(workers), Costs(0.01, pull=0.1, push=0.1, service=0.05)):
            outcome = simulate(SYSTEMS[system](steps, workers), steps, factors, costs)
            assert outcome.over_bound >= 1
            if outcome.lost == 0:
                assert (outcome.seconds >= outcome.bound * (1 - 1e-12)).all()


def test_lasting_slowness_costs_static_rounds_what_it_must_and_dsana_little() -> None:
    factors = np.ones((100, 64))
    factors[:, 0] = 4
    static = simulate(Static(512, 64), 512, factors, ALONE)
    dsana = simulate(Reallocating(512, 64), 512, factors, ALONE)
    assert static.over_bound == pytest.approx(4 * 63.25 / 64)
    # Steps are whole, and the first three rounds are static ones.
    assert dsana.over_bound < 1.25


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_seed_has_one_result(system: str) -> None:
    def run(seed: int) -> dict[str, float]:
        row = {"cluster": "types+periods", "workers": 16, "system": system, "rounds": 20}
        done = simulated({**row, "seed": seed, "num_steps": 64})
        return {key: done[key] for key in done if "decision" not in key and key != "seed"}

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_workers_are_as_the_sources_say() -> None:
    random = np.random.default_rng(0)
    types = lasting_speeds("types", 100_000, random)
    assert np.mean(types == 0.5) == pytest.approx(0.927, abs=0.005)
    assert np.mean(types == 1) == pytest.approx(0.063, abs=0.005)
    models = lasting_speeds("models", 100_000, random)
    assert models.max() / models.min() == pytest.approx(1.77, abs=0.01)
    slow = slowdowns(100_000, random)
    assert np.mean(slow < 2.5) == pytest.approx(0.8, abs=0.01)
    assert np.mean(slow > 10) == pytest.approx(0.1, abs=0.01)
    with pytest.raises(ValueError, match="no workers of kind 'fast'"):
        lasting_speeds("fast", 2, random)


def test_slow_periods_have_their_share_and_length() -> None:
    factors = Cluster(slow_share=0.1, period=20, jitter=0).factors(
        2000, 200, np.random.default_rng(0)
    )
    slow = factors > 1
    assert slow.mean() == pytest.approx(0.1, abs=0.01)
    begins = (slow[1:] & ~slow[:-1]).sum()
    assert slow.sum() / begins == pytest.approx(20, abs=2)
    assert (Cluster(jitter=0).factors(5, 5, np.random.default_rng(0)) == 1).all()


def test_all_systems_of_a_seed_meet_the_same_workers() -> None:
    options = argparse.Namespace(
        clusters=["types"], workers=[16], runs=1, seed=3, rounds=10, steps_per_worker=4
    )
    bounds = {simulated(row)["bound_s_per_round"] for row in wanted_rows(options)}
    assert len(bounds) == 1


def test_results_are_kept_and_found(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    results = Results(path, ["name", "seed"])
    results.add({"name": "a", "seed": 1, "value": 1})
    results.add({"name": "a", "seed": 2, "value": 2})
    results.add({"name": "a", "seed": 1, "value": 3})
    again = Results(path, ["name", "seed"])
    assert again.find({"name": "a", "seed": 1}) == {"name": "a", "seed": 1, "value": 3}
    assert again.find({"name": "b", "seed": 1}) is None
    assert len(json.loads(path.read_text())) == 2
    for wrong, message in (("{}", "no list of results"), ("[1", "is no JSON")):
        path.write_text(wrong)
        with pytest.raises(ValueError, match=message):
            Results(path, ["name"])


def test_the_command_goes_on_where_it_was_interrupted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, picture = tmp_path / "scale.json", tmp_path / "scale.png"
    few = ["--workers", "16,32", "--clusters", "types", "--rounds", "10", "--runs", "2"]
    assert main([*few, "--json", str(path), "--plot", str(picture)]) == 0
    assert "minimum 0" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = json.loads(path.read_text())
    assert len(rows) == 2 * 2 * len(SYSTEMS)
    rows[0]["mark"] = "kept"
    path.write_text(json.dumps(rows[:-3]))
    assert main([*few, "--json", str(path)]) == 0
    again = json.loads(path.read_text())
    assert len(again) == len(rows)
    assert again[0] == rows[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "0"], "'0' is not a list of positive numbers"),
        (["--clusters", "none"], "no cluster 'none'; there are same, types"),
        (["--rounds", "0"], "at least 1"),
        (["--json", __file__], "is no JSON"),
    ],
)
def test_mistakes_are_told(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in capsys.readouterr().err
