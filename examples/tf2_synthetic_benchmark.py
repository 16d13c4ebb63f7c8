"""Images per second of a Keras model on synthetic images, to compare systems with.

    tf-rdmabatch launch --workers 2 --ps 1 examples/tf2_synthetic_benchmark.py --model ResNet50

Flags and output are those that Horovod's synthetic benchmark has made familiar. The same command
measures each of `--strategy`:

rdmabatch    tf_rdmabatch.ParameterServerStrategy: synchronous, one replica on each worker
pss          tf.distribute.ParameterServerStrategy: asynchronous, scheduled by a ClusterCoordinator
multiworker  tf.distribute.MultiWorkerMirroredStrategy: this script starts itself once for each of
             the job's workers, on this host; without `launch`, run it on each host with a TF_CONFIG
             that has worker tasks alone
none         one process, without `launch`

Each worker makes its images itself: what comes of an input pipeline is not measured.
"""

import argparse
import difflib
import inspect
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_rdmabatch
from tf_rdmabatch.launch.cluster import free_ports

CLASSES = 1000


def applications() -> dict[str, Callable[..., keras.Model]]:
    """Return the models of keras.applications by name."""
    members = inspect.getmembers(keras.applications, callable)
    return {name: function for name, function in members if name[0].isupper()}


def model_name(text: str) -> str:
    """Parse the name of a model."""
    known = applications()
    if text in known:
        return text
    lower = {name.lower(): name for name in known}
    near = [lower[name] for name in difflib.get_close_matches(text.lower(), lower, n=5)]
    hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(known)}"
    raise argparse.ArgumentTypeError(f"keras.applications has no model {text!r}; {hint}")


def slow_worker(text: str) -> tuple[int, float]:
    """Parse WORKER=FACTOR."""
    worker, _, factor = text.partition("=")
    try:
        parsed = int(worker), float(factor)
    except ValueError:
        parsed = -1, 0.0
    if parsed[0] < 0 or not 1 <= parsed[1] <= 1000:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not WORKER=FACTOR with a worker's number and a factor from 1 to 1000"
        )
    return parsed


def count(text: str) -> int:
    """Parse a number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=model_name, default="ResNet50", help="default: ResNet50")
    parser.add_argument("--batch-size", type=count, default=32, help="of each worker; default: 32")
    parser.add_argument("--image-size", type=count, default=224, help="pixels; default: 224")
    parser.add_argument("--num-warmup-batches", type=count, default=10, help="default: 10")
    parser.add_argument("--num-batches-per-iter", type=count, default=10, help="default: 10")
    parser.add_argument("--num-iters", type=count, default=10, help="default: 10")
    parser.add_argument(
        "--strategy", choices=("rdmabatch", "pss", "multiworker", "none"), default="rdmabatch"
    )
    parser.add_argument(
        "--confirm", choices=("batch", "each"), default="batch", help="rdmabatch; default: batch"
    )
    parser.add_argument("--transport", default="auto", help="rdmabatch; default: auto")
    parser.add_argument(
        "--slow",
        type=slow_worker,
        metavar="WORKER=FACTOR",
        help="make a worker's steps take FACTOR times as long, as measured in each step",
    )
    return parser.parse_args()


def make_step(strategy: Any, options: argparse.Namespace) -> Callable[[tf.Tensor], None]:
    """Create the model, and return a replica's step, which takes how slow the replica is."""
    with strategy.scope():
        try:
            model = applications()[options.model](
                weights=None,
                input_shape=(options.image_size, options.image_size, 3),
                classes=CLASSES,
                classifier_activation=None,
            )
        except ValueError as error:
            raise SystemExit(f"{options.model} cannot be made: {error}") from error
        optimizer = keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)

    def step(slowness: tf.Tensor) -> None:
        begin = tf.timestamp()
        with tf.control_dependencies([begin]):
            images = tf.random.stateless_uniform(
                [options.batch_size, options.image_size, options.image_size, 3], [1, 2]
            )
        labels = tf.range(options.batch_size) % CLASSES
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels, model(images, training=True)
            )
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        if options.slow is not None:
            gradients = delayed(gradients, begin, slowness)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    return step


def delayed(tensors: list[tf.Tensor], begin: tf.Tensor, slowness: tf.Tensor) -> list[tf.Tensor]:
    """Return the tensors after `slowness` times the time that they took since `begin`."""
    with tf.control_dependencies(tensors):
        end = begin + (tf.timestamp() - begin) * tf.cast(slowness, tf.float64)
    now = tf.while_loop(
        lambda now: now < end, lambda _: (tf.timestamp(),), [begin], parallel_iterations=1
    )
    with tf.control_dependencies(tf.nest.flatten(now)):
        return [tf.identity(tensor) for tensor in tensors]


def slowness_of(worker: int, options: argparse.Namespace) -> float:
    """Return how many times as long the worker's steps take."""
    slow, factor = options.slow or (0, 1.0)
    return float(factor) if worker == slow else 1.0


def require_job(options: argparse.Namespace) -> dict[str, Any]:
    """Return the cluster of TF_CONFIG."""
    config = os.environ.get("TF_CONFIG")
    if not config:
        raise SystemExit(
            f"--strategy {options.strategy} needs a job: tf-rdmabatch launch --workers 2 --ps 1 "
            f"{sys.argv[0]} ..., or --strategy none"
        )
    parsed: dict[str, Any] = json.loads(config)
    return parsed


def synchronous(strategy: Any, options: argparse.Namespace, owner: Callable[[int], int]) -> Any:
    """Return what runs a number of batches on each replica; `owner` is a replica's worker."""
    step = make_step(strategy, options)
    slowness = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(slowness_of(owner(context.replica_id_in_sync_group), options))
    )

    @tf.function
    def batches(count: tf.Tensor, slowness: Any) -> None:
        for _ in tf.range(count):
            strategy.run(step, args=(slowness,))

    return lambda count: batches(tf.constant(count), slowness)


def rdmabatch(options: argparse.Namespace) -> tuple[Callable[[int], object], int]:
    """Return what runs batches on each worker, and the number of workers."""
    workers = len(require_job(options)["cluster"]["worker"])
    strategy = tf_rdmabatch.ParameterServerStrategy(
        num_virtual_replicas=workers, transport=options.transport, confirm=options.confirm
    )
    return synchronous(strategy, options, lambda replica: replica), workers


def pss(options: argparse.Namespace) -> tuple[Callable[[int], object], int]:
    """Return what schedules batches, as many as synchronous workers would run, and waits."""
    workers = len(require_job(options)["cluster"]["worker"])
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    step = make_step(strategy, options)
    # A scheduled function does not know its worker: each takes a number with its dataset.
    factors = tf.constant([slowness_of(worker, options) for worker in range(workers)])
    numbers = tf.Variable(-1, dtype=tf.int64)

    def dataset() -> tf.data.Dataset:
        number = numbers.assign_add(1, read_value=True)
        return tf.data.Dataset.from_tensors(tf.gather(factors, number % workers)).repeat()

    iterator = iter(coordinator.create_per_worker_dataset(dataset))

    @tf.function
    def one(iterator: Any) -> None:
        strategy.run(step, args=(next(iterator),))

    def run(count: int) -> None:
        for _ in range(count * workers):
            coordinator.schedule(one, args=(iterator,))
        coordinator.join()

    return run, workers


def multiworker(options: argparse.Namespace) -> tuple[Callable[[int], object], int]:
    """Return what runs batches on each worker; this process is one of them."""
    config = require_job(options)
    if "ps" in config["cluster"]:
        start_workers(len(config["cluster"]["worker"]))
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    worker = config["task"]["index"]
    if worker != 0:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
    run = synchronous(strategy, options, lambda _: worker)
    return run, strategy.num_replicas_in_sync


def start_workers(workers: int) -> None:
    """Run this script as each worker of a cluster without servers, and exit as they do."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(workers)]
    processes = []
    for index in range(workers):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = os.environ | {"TF_CONFIG": json.dumps(config)}
        processes.append(subprocess.Popen([sys.executable, *sys.argv], env=environment))
    while any(process.poll() is None for process in processes):
        failed = [p for p in processes if p.poll() not in (None, 0)]
        if failed:
            # The others would wait for it.
            for process in processes:
                process.kill()
            raise SystemExit(failed[0].returncode)
        time.sleep(0.1)
    raise SystemExit(max(process.returncode for process in processes))


def none(options: argparse.Namespace) -> tuple[Callable[[int], object], int]:
    """Return what runs batches in this process."""
    step = make_step(tf.distribute.get_strategy(), options)
    function = tf.function(step)
    slowness = tf.constant(slowness_of(0, options))

    def run(count: int) -> None:
        for _ in range(count):
            function(slowness)

    return run, 1


def main() -> None:
    """Measure, and print images per second with 1.96 standard deviations."""
    options = arguments()
    strategies = {"rdmabatch": rdmabatch, "pss": pss, "multiworker": multiworker, "none": none}
    run, workers = strategies[options.strategy](options)
    if options.slow is not None and options.slow[0] >= workers:
        raise SystemExit(f"--slow {options.slow[0]}=...: the last worker is {workers - 1}")
    print(f"Model: {options.model}")
    print(f"Batch size: {options.batch_size}")
    print(f"Number of workers: {workers}")
    print("Running warmup...")
    run(options.num_warmup_batches)
    print("Running benchmark...")
    rates = []
    for i in range(options.num_iters):
        begin = time.monotonic()
        run(options.num_batches_per_iter)
        took = time.monotonic() - begin
        rates.append(options.batch_size * options.num_batches_per_iter / took)
        print(f"Iter #{i}: {rates[-1]:.1f} img/sec per worker", flush=True)
    mean, deviation = np.mean(rates), 1.96 * np.std(rates)
    print(f"Img/sec per worker: {mean:.1f} +-{deviation:.1f}")
    total = f"{workers * mean:.1f} +-{workers * deviation:.1f}"
    print(f"Total img/sec on {workers} worker(s): {total}")


if __name__ == "__main__":
    main()
