"""Each mistake gets one clear error, where it is made."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.strategy.cluster import MakeRunner

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("allotment_in_function", "RuntimeError: the allotment is set between rounds"),
        ("coordinator", "RuntimeError: a ClusterCoordinator schedules asynchronous steps"),
        ("small_batch", "ValueError: the dataset's batches have 2 examples, fewer than the 4"),
        ("too_few_values", "ValueError: a per-replica value with 3 values was given to strategy"),
        ("changing_shape", "its shape has to be known, and the same in each step"),
        ("changed_shape", "needs a shape that is known and stays"),
        ("branch_on_reduction", "is known on the parameter servers alone"),
        ("variable_in_run", "create it before, in strategy.scope()"),
        ("merge_call", "use tf.distribute.get_replica_context().all_reduce"),
        ("printed_reduction", "is known on the parameter servers alone"),
        ("nested_function", "is written inside a nested tf.function"),
        ("nested_reduction", "is all-reduced, gathered or given to an update in it"),
        ("scatter", "write Variable:0.assign(tf.tensor_scatter_nd_"),
        ("next_in_replica", "strategy.run(function, args=(next(iterator),))"),
        ("two_steps_in_one", "call strategy.run once for each of these steps"),
        ("failing_replica", "InvalidArgumentError"),
    ],
)
def test_mistake(runners: MakeRunner, case: str, expected: str) -> None:
    found = runners("cluster", 4, 2, 1).run(f"error_cases:{case}")
    assert expected in str(found["message"])


@pytest.mark.parametrize("value", [[1, 1], [4], [1, 1, 2], [5, -1], []], ids=str)
def test_allotment(runners: MakeRunner, value: list[int]) -> None:
    found = runners("cluster", 4, 2, 1).run("error_cases:bad_allotment", value=value)
    expected = f"ValueError: the allotment {value} has to give each of the 2 workers a number"
    assert expected in str(found["message"])


@pytest.mark.parametrize("dtype", ["string", "complex64", "uint64"])
def test_dtype_that_cannot_travel(runners: MakeRunner, dtype: str) -> None:
    found = runners("cluster", 4, 2, 1).run("error_cases:unknown_dtype", dtype=dtype)
    expected = f"has dtype {dtype}, which cannot travel between workers and parameter servers"
    assert expected in str(found["message"])


@pytest.mark.parametrize("how", ["numpy", "asarray"])
def test_value_of_a_reduction(runners: MakeRunner, how: str) -> None:
    found = runners("cluster", 4, 2, 1).run("error_cases:value_of_reduction", how=how)
    assert "return the tensor and use its value after strategy.run" in str(found["message"])


CLUSTER = {"worker": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"], "chief": ["127.0.0.1:3"]}
CALLS = """
import json, os, sys
import tf_rdmabatch
for line in sys.stdin:
    call, config = json.loads(line)
    os.environ.pop("TF_CONFIG", None)
    if config is not None:
        os.environ["TF_CONFIG"] = config
    outcome = "nothing was raised"
    try:
        eval(f"tf_rdmabatch.{call}")
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"
    print(json.dumps(outcome), flush=True)
"""


@pytest.fixture(scope="module")
def caller() -> Iterator[subprocess.Popen[str]]:
    """Return a process that answers a call and a TF_CONFIG with the error that was raised.

    There is one, since the import of TensorFlow takes long.
    """
    command = [sys.executable, "-c", CALLS]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        yield process
        process.kill()


@pytest.mark.parametrize(
    ("call", "config", "expected"),
    [
        ("ParameterServerStrategy()", None, "there is no cluster, since TF_CONFIG is not set"),
        ("ParameterServerStrategy()", "{", "TF_CONFIG is not JSON"),
        (
            "ParameterServerStrategy()",
            {"cluster": CLUSTER, "task": {"type": "worker", "index": 0}},
            "this process is worker:0 of the cluster, which serves",
        ),
        (
            "ParameterServerStrategy()",
            {"cluster": {"worker": ["127.0.0.1:1"]}, "task": {"type": "chief", "index": 0}},
            "the cluster has no ps task",
        ),
        (
            "ParameterServerStrategy()",
            {"cluster": {"ps": ["127.0.0.1:1"]}, "task": {"type": "chief", "index": 0}},
            "the cluster has no worker task",
        ),
        (
            "ParameterServerStrategy(start_timeout=1)",
            {"cluster": CLUSTER, "task": {"type": "chief", "index": 0}},
            "not up after 1 s: ps:0 at 127.0.0.1:2 (",
        ),
        ("ParameterServerStrategy(transport='rdma')", None, 'no transport "rdma": choose one of'),
        ("ParameterServerStrategy(ports='1-0')", None, '"1-0" is not a range of ports'),
        (
            "ParameterServerStrategy()",
            {
                "cluster": CLUSTER | {"worker": ["127.0.0.1:2"]},
                "task": {"type": "chief", "index": 0},
            },
            "worker:0 and ps:0 have one address in the cluster, 127.0.0.1:2",
        ),
        (
            "serve()",
            {"cluster": CLUSTER | {"chief": ["127.0.0.1:1"]}, "task": {"type": "ps", "index": 0}},
            "worker:0 and chief:0 have one address in the cluster, 127.0.0.1:1",
        ),
        (
            "ParameterServerStrategy(start_timeout=1)",
            {
                "cluster": CLUSTER | {"ps": ["nowhere.invalid:2"]},
                "task": {"type": "chief", "index": 0},
            },
            "ps:0 at nowhere.invalid:2 (that name does not resolve here: ",
        ),
        ("ParameterServerStrategy(block_size=0)", None, "block_size is a number of bytes from 64"),
        ("ParameterServerStrategy(block_size=1e5)", None, "block_size is a number of bytes"),
        (
            "ParameterServerStrategy(block_size='automatic')",
            None,
            "'auto' or None, not 'automatic'",
        ),
        ("ParameterServerStrategy(num_virtual_replicas=0)", None, "from 1, not 0"),
        ("ParameterServerStrategy(task_timeout=0)", None, "positive numbers of seconds"),
        (
            "serve()",
            {"cluster": CLUSTER, "task": {"type": "chief", "index": 0}},
            "serve() is for worker and ps tasks, and this process is chief",
        ),
        ("ParameterServerStrategy(consistency='ssp')", None, "consistency is 'bsp' or 'asp'"),
        ("ParameterServerStrategy(confirm='never')", None, "confirm is 'batch' or 'each'"),
    ],
)
def test_role(caller: subprocess.Popen[str], call: str, config: object, expected: str) -> None:
    text = config if config is None or isinstance(config, str) else json.dumps(config)
    assert caller.stdin is not None
    assert caller.stdout is not None
    caller.stdin.write(json.dumps([call, text]) + "\n")
    caller.stdin.flush()
    assert expected in json.loads(caller.stdout.readline())


def test_import_loads_no_tensorflow() -> None:
    check = "import sys, tf_rdmabatch; dir(tf_rdmabatch); assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=60)
