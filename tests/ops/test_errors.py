"""What bad input, cancelled steps and patience that ends get: one clear error each, and no hang."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.eager import cancellation

from tests.ops.cluster import TOKEN, Job, fails, run
from tf_rdmabatch import _core, ops


def test_dtypes_and_shapes_that_a_parameter_cannot_have(job: Job) -> None:
    with pytest.raises(ValueError, match="'w': string is not one of float32, float64"):
        job.handles("w", "string", [3])
    with pytest.raises(ValueError, match="'w': uint8 is not one of"):
        job.handles("w", "uint8", [3])
    with pytest.raises(ValueError, match="fully defined shape, not \\(3, None\\)"):
        job.handles("w", "float32", [3, None])


def test_values_that_do_not_fit(job: Job) -> None:
    served, (a, _) = job.handles("w", "float32", [3])
    job.serve(served, contributors=2)
    with pytest.raises(ValueError, match="'w' has shape \\(3,\\), the value \\(2,\\)"):
        ops.push(a, tf.ones([2]), 1)
    with pytest.raises(ValueError, match="float64"):
        ops.push(a, tf.ones([3], tf.float64), 1)

    @tf.function(input_signature=[tf.TensorSpec([None])])
    def push(value: Any) -> None:
        ops.push(a, value, 1)

    push(tf.ones([3]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r'"w" is float32 \[3\]'):
        push(tf.ones([4]))


def test_another_shape_than_the_server_has(job: Job) -> None:
    served, _ = job.handles("w", "float32", [3])
    job.serve(served, contributors=2)
    _, (a, b) = job.handles("w", "float32", [4])
    message = r'"w" is float32 \[3\], not float32 \[4\]'
    fails(tf.errors.InvalidArgumentError, message, lambda: ops.pull(a, 1))
    fails(tf.errors.InvalidArgumentError, message, lambda: ops.push(b, tf.ones([4]), 1))


def test_steps_and_versions_out_of_order(job: Job) -> None:
    served, (a, _) = job.handles("w", "float32", [3])
    job.serve(served, contributors=1)
    run(lambda: ops.push(a, tf.ones([3]), 1))
    run(lambda: ops.collect(served, 1))
    fails(
        tf.errors.FailedPreconditionError,
        "awaits step 2, not 1",
        lambda: ops.collect(served, 1),
    )
    fails(tf.errors.InvalidArgumentError, "at least 1, not 0", lambda: ops.pull(a, 0))
    fails(tf.errors.InvalidArgumentError, "at least 1, not 0", lambda: ops.collect(served, 0))
    run(lambda: ops.publish(served, tf.ones([3]), 5))
    fails(
        tf.errors.InvalidArgumentError,
        "version 5; 5 is no later one",
        lambda: ops.publish(served, tf.ones([3]), 5),
    )
    fails(
        tf.errors.AlreadyExistsError, "is served already", lambda: job.serve(served, contributors=1)
    )
    fails(
        tf.errors.FailedPreconditionError,
        "micro-step 1 of step 1 does not follow",
        lambda: ops.push(a, tf.ones([3]), 1, 1, 2),
    )
    fails(
        tf.errors.InvalidArgumentError,
        "micro_steps must be at least 3, not 2",
        lambda: ops.push(a, tf.ones([3]), 1, 2, 2),
    )


def test_a_refused_push_fails_a_later_op(job: Job) -> None:
    served, (a, _) = job.handles("w", "float32", [3])
    job.serve(served, contributors=2)
    for _ in range(2):
        run(lambda: ops.push(a, tf.ones([3]), 1))
    fails(
        tf.errors.AlreadyExistsError,
        "contributor 0 has contributed block 0 of step 1",
        lambda: ops.pull(a, 1),
    )


def test_ops_on_the_wrong_task(job: Job) -> None:
    _, (a, _) = job.handles("w", "float32", [3])
    fails(
        tf.errors.InvalidArgumentError,
        '"w" is served by ps:0, and this is task worker:0',
        lambda: ops.publish(a, tf.ones([3]), 1),
    )
    fails(
        tf.errors.InvalidArgumentError,
        '"w" is served by ps:0, and this is task worker:0',
        lambda: ops.collect(a, 1),
    )
    handle = ops.parameter("w", "float32", [3], server="ps:5").handle(job.workers[0])
    fails(
        tf.errors.FailedPreconditionError,
        "worker:0 has no connection to ps:5: connect it first",
        lambda: ops.pull(handle, 1),
    )


def test_a_process_without_an_engine() -> None:
    _core.stop_task()
    handle = ops.parameter("w", "float32", [3], server="ps:0").handle("/device:CPU:0")
    with tf.device("/device:CPU:0"):
        for op in (lambda: ops.pull(handle, 1), ops.stats, lambda: ops.connect({})):
            with pytest.raises(tf.errors.FailedPreconditionError, match=r"run tf_rdmabatch\.ops\."):
                op()


def test_engines_that_cannot_start() -> None:
    with tf.device("/device:CPU:0"):
        with pytest.raises(tf.errors.InvalidArgumentError, match="token"):
            ops.configure("chief:0", "")
        with pytest.raises(tf.errors.InvalidArgumentError, match="slots"):
            ops.configure("chief:0", TOKEN, slots=7)
        with pytest.raises(ValueError, match="pigeons"):
            ops.configure("chief:0", TOKEN, transport="pigeons")
        taken = ops.configure("chief:0", TOKEN).numpy().decode()
        assert _core.current_task() == ("chief:0", taken)
    _core.stop_task()
    assert _core.current_task() is None


def test_a_task_of_another_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_RDMABATCH_TOKEN", "of another job")
    with tf.device("/device:CPU:0"):
        with pytest.raises(tf.errors.PermissionDeniedError, match="the same TF_RDMABATCH_TOKEN"):
            ops.configure("chief:0", TOKEN)
        ops.configure("chief:0", "of another job")
    _core.stop_task()


def test_peers_that_cannot_be_reached(job: Job) -> None:
    with tf.device("/device:CPU:0"):
        ops.configure("chief:0", "another token")
        with tf.device(job.server):
            address = ops.configure("ps:0", TOKEN)
        with pytest.raises(tf.errors.PermissionDeniedError, match="connecting to ps:0 at"):
            ops.connect({"ps:0": address}, timeout=60)
        with pytest.raises(tf.errors.DeadlineExceededError, match=r"ps:1 at 127\.0\.0\.1:1"):
            ops.connect({"ps:1": "127.0.0.1:1"}, timeout=0.5)
        assert ops.connect({}) == 0
    _core.stop_task()


@pytest.mark.parametrize("served_first", [True, False])
def test_patience_ends(job: Job, served_first: bool) -> None:
    served, (a, _) = job.handles("w", "float32", [3])
    if served_first:
        job.serve(served, contributors=2)
    fails(
        tf.errors.DeadlineExceededError,
        'pulling parameter "w" missed its deadline',
        lambda: ops.pull(a, 1, timeout=0.3),
    )
    if served_first:
        fails(
            tf.errors.DeadlineExceededError,
            'collecting parameter "w" missed its deadline',
            lambda: ops.collect(served, 1, timeout=0.3),
        )
    else:
        fails(
            tf.errors.DeadlineExceededError,
            'pushing to parameter "w" missed its deadline',
            lambda: ops.push(a, tf.ones([3]), 1, timeout=0.3),
        )


def test_a_failing_step_ends_its_waits(job: Job) -> None:
    served, (a, b) = job.handles("w", "float32", [3])
    unserved = job.handles("x", "float32", [3])[1][0]
    job.serve(served, contributors=2)

    @tf.function
    def step() -> Any:
        with tf.device(job.workers[1]):
            tf.debugging.assert_less(tf.random.uniform([]), -1.0, "this step fails")
        ops.push(unserved, tf.ones([3]), 1)
        return ops.pull(a, 1), ops.pull(b, 1), ops.collect(served, 1)

    with pytest.raises(tf.errors.InvalidArgumentError, match="this step fails"):
        step()
    # All of them can be used afterwards.
    ops.publish(served, tf.ones([3]), 1)
    for handle in (a, b):
        ops.push(handle, ops.pull(handle, 1), 1)
    assert ops.collect(served, 1).numpy().tolist() == [2, 2, 2]


def test_cancelling_ends_waits(job: Job) -> None:
    served, (a, _) = job.handles("w", "float32", [3])
    job.serve(served, contributors=2)

    @tf.function
    def step() -> Any:
        return ops.pull(a, 1), ops.collect(served, 1)

    manager = cancellation.CancellationManager()
    cancelled = manager.get_cancelable_function(step.get_concrete_function())
    timer = threading.Timer(0.5, manager.start_cancel)
    timer.start()
    with pytest.raises(tf.errors.CancelledError):
        cancelled()
    timer.join()


def test_a_new_engine_ends_the_waits_of_the_old_one(
    job: Job, until: Callable[[Callable[[], bool]], None]
) -> None:
    served, (a, b) = job.handles("w", "float32", [3])
    job.serve(served, contributors=2)
    errors: list[str] = []

    def wait() -> None:
        try:
            run(lambda: ops.pull(a, 1))
        except tf.errors.OpError as error:
            errors.append(error.message)

    def asked() -> int:
        with tf.device(job.workers[0]):
            return ops.stats()["messages_sent"]

    before = asked()
    thread = threading.Thread(target=wait)
    thread.start()
    # The first pull asks the server about the parameter.
    until(lambda: asked() > before)
    job.start()
    thread.join(60)
    assert len(errors) == 1
    assert re.search("cancelled|ended", errors[0])
    # Handles serve for the new engine as well.
    job.serve(served, contributors=2)
    ops.publish(served, tf.ones([3]), 1)
    assert ops.pull(b, 1).numpy().tolist() == [1, 1, 1]
