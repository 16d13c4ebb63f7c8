"""A training over hosts, each an address of an ssh server, from a hostfile to its end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import sshd
from tests.strategy.cluster import ROOT
from tests.strategy.test_launched_job import processes

HOSTS = """
node1 address=127.0.0.2 chief ps=1
node2 address=127.0.0.3 workers=1
node3 address=127.0.0.4 workers=1
"""


@pytest.mark.timeout(300)
@pytest.mark.skipif(sshd.MISSING is not None, reason=sshd.MISSING or "")
def test_a_training_over_hosts(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(HOSTS)
    port = str(sshd.ports_in_a_row(4))
    marker = f"TF_JOB_OF_A_TEST={tmp_path}"
    with sshd.cluster(tmp_path) as cluster:
        done = subprocess.run(
            [
                *[sys.executable, "-m", "tf_rdmabatch", "launch", "--ssh", cluster.ssh],
                *["--hosts", str(tmp_path / "hosts"), "--port", port, "--env", marker],
                *["examples/keras_digits.py", "--epochs", "2"],
            ],
            cwd=ROOT,
            env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert float(re.findall(r"test accuracy ([\d.]+)%", done.stdout)[0]) > 80
    assert "worker:1 serves at grpc://127.0.0.4:" in done.stdout
    assert processes(marker) == {}
