"""What a worker or parameter server runs."""

from __future__ import annotations

import tensorflow as tf

from tf_rdmabatch import ops as _ops  # noqa: F401  The server runs ops of the library.


def serve(job: str | None = None, index: int | None = None) -> None:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    config = tf.compat.v1.ConfigProto()
    config.inter_op_parallelism_threads = 8
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=job or resolver.task_type,
        task_index=resolver.task_id if index is None else index,
        protocol="grpc",
        config=config,
    )
    server.join()
