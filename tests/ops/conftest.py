"""The cluster that the tests of the ops share. Without TensorFlow they are not collected."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Iterator

import pytest

collect_ignore_glob: list[str] = []
if importlib.util.find_spec("tensorflow") is None:
    collect_ignore_glob.append("test_*.py")
else:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tests.ops.cluster import Job

    @pytest.fixture(scope="session")
    def cluster() -> Iterator[Job]:
        job = Job()
        yield job
        job.close()

    @pytest.fixture
    def job(cluster: Job) -> Job:
        """Return the cluster with fresh engines."""
        cluster.start()
        return cluster
