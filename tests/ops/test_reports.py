"""What tasks say of themselves: counters, times of rounds, transports."""

from __future__ import annotations

import threading
import time

import numpy as np
import tensorflow as tf

from tests.ops.cluster import Job
from tf_rdmabatch import ops


def test_times_of_rounds(job: Job) -> None:
    served, (a, b) = job.handles("w", "float32", [1000])
    with tf.device(job.server):
        weights = tf.Variable(tf.ones([1000]))
        assert ops.round_times().shape == (0,)
    job.serve(served, contributors=2)
    for step in (1, 2):
        ops.publish(served, weights.read_value(), step)
        for worker, handle in enumerate((a, b)):
            value = ops.pull(handle, step)
            for micro_step in range(3):
                time.sleep(0.002)
                ops.push(handle, job.on(worker, value), step, micro_step, 3)
        weights.assign_sub(ops.collect(served, step) * 0.01)
        with tf.device(job.server):
            ops.updated([weights], step)
    for handle in (a, b):
        with tf.device(handle.device):
            times, stats = ops.round_times(), ops.stats()
        assert times["version"].tolist() == times["step"].tolist() == [1, 2]
        assert times["micro_steps"].tolist() == [3, 3]
        ends = times["micro_step_end"]
        # On a loaded machine one that was late may have been close to the next.
        assert (np.diff(ends[:, :3]) > 0).all()
        assert (ends[:, 2] == times["compute_end"]).all()
        assert (times["push_end"] >= times["compute_end"]).all()
        assert (times["pull_end"] >= times["pull_begin"]).all()
        assert stats["rounds"] == 2
        assert stats["micro_steps"] == 6
        assert stats["compute_ns"] == (times["compute_end"] - times["pull_end"]).sum()
    with tf.device(job.server):
        times, stats = ops.round_times(), ops.stats()
        assert ops.round_times(last=1)["step"].tolist() == [2]
    assert times["step"].tolist() == [1, 2]
    assert (times["collect_end"] > times["publish_end"]).all()
    assert (times["update_end"] > times["collect_end"]).all()
    assert stats["update_ns"] == (times["update_end"] - times["collect_end"]).sum()
    assert not times["pull_begin"].any()


def test_waits_are_told_from_work(job: Job) -> None:
    served, (a, _) = job.handles("w", "float32", [10])
    job.serve(served, contributors=1)
    pull = tf.function(lambda step: ops.pull(a, step))
    pull.get_concrete_function(tf.TensorSpec([], tf.int64))
    # On a busy machine a pull may begin when there is nothing to wait for any more: the next does.
    for step in range(1, 20):
        version = tf.constant(step, tf.int64)
        timer = threading.Timer(0.2, ops.publish, (served, tf.ones([10]), version))
        timer.start()
        pull(version)
        timer.join()
        ops.push(a, tf.ones([10]), version)
        ops.collect(served, version).numpy()
        with tf.device(a.device):
            times, stats = ops.round_times(), ops.stats()
        assert stats["wait_ns"] == times["pull_wait"].sum() + times["push_wait"].sum()
        pulled = times["pull_end"] - times["pull_begin"] - times["pull_wait"]
        assert stats["pull_ns"] == pulled.sum()
        if times["pull_wait"][-1] > 100_000_000:
            break
    assert times["pull_wait"][-1] > 100_000_000


def test_transports_are_named_with_the_reason(job: Job) -> None:
    for worker in job.workers:
        with tf.device(worker):
            assert ops.transports() == {"ps:0": "shm (first choice)"}
    with tf.device(job.server):
        chosen = ops.transports()
    assert list(chosen.values()) == ["shm (the peer's choice)"] * len(job.workers)
