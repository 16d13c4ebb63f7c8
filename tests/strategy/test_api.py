"""What users call on a strategy does what it does under MirroredStrategy."""

from __future__ import annotations

import pytest

from tests.strategy.cluster import MakeRunner, compare

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("case", ["two_models", "fits_in_turn", "values", "variables", "extended"])
def test_as_mirrored_strategy(runners: MakeRunner, case: str) -> None:
    compare(runners, f"api_cases:{case}", allotment=[1, 3])
