"""A short Keras `fit` over an RDMA device has the weights of one process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.strategy.cluster import ROOT
from tf_rdmabatch import _core


@pytest.mark.verbs
@pytest.mark.timeout(600)
def test_fit(tmp_path: Path) -> None:
    available, reason = next((a, r) for name, a, r in _core.transports() if name == "verbs")
    if not available:
        pytest.skip(reason)
    result = tmp_path / "weights.npz"
    done = subprocess.run(
        [sys.executable, "-m", "tests.strategy.forked_job", "verbs", str(result)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found, expected = np.load(result), np.load(result.with_suffix(".reference.npz"))
    assert sorted(found) == sorted(expected)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-5, err_msg=name)
