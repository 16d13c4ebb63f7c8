"""The suites that ship in the wheels give the results that `wheel_suites.md` lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.strategy.cluster import MakeRunner

pytestmark = pytest.mark.timeout(300)

TEXT = (Path(__file__).parent / "wheel_suites.md").read_text()
CELLS = [line.strip("| ").split(" | ") for line in TEXT.splitlines() if line.startswith("| ")]
# Grouped by the cluster that they need.
TABLE = sorted((int(n), suite, name, result) for suite, name, n, result in CELLS[1:])


@pytest.mark.parametrize(
    ("replicas", "suite", "name", "result"), TABLE, ids=[f"{s}-{n}" for _, s, n, _ in TABLE]
)
def test_case(runners: MakeRunner, replicas: int, suite: str, name: str, result: str) -> None:
    found = runners("cluster", replicas, 2, 1).run("wheel_cases:run", suite=suite, name=name)
    outcome = str(found["outcome"])
    if result == "passes":
        assert outcome == "passed"
    else:
        assert result.startswith("cannot apply: ")
        assert outcome != "passed"
        assert ("skips itself" in result) == outcome.startswith("skipped: ")


def test_table_is_complete(runners: MakeRunner) -> None:
    shipped = runners("cluster", 2, 2, 1).run("wheel_cases:cases")
    listed = {(suite, name) for _, suite, name, _ in TABLE}
    assert listed == {(suite, str(name)) for suite, names in shipped.items() for name in names}
