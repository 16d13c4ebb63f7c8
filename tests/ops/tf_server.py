"""A worker or ps task. Arguments: its type, its index, the cluster as JSON."""

from __future__ import annotations

import json
import sys

import tensorflow as tf

import tf_rdmabatch.ops  # noqa: F401  (loads the ops)

job, index, cluster = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4)
server = tf.distribute.Server(cluster, job, index, "grpc", config=config, start=True)
print("serving", flush=True)
server.join()
