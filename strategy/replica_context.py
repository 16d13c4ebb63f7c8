"""What `tf.distribute.get_replica_context()` returns in a virtual replica."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_rdmabatch.strategy import _tensorflow as private
from tf_rdmabatch.strategy import trace as traces


class VirtualReplicaContext(private.distribute_lib.ReplicaContext):  # type: ignore[misc]
    """Context of a virtual replica, whose number is a tensor."""

    def all_gather(self, value: Any, axis: int, options: Any = None) -> Any:
        """Return all replicas' values, joined along `axis`, as a value for updates and results."""
        del options
        gather = traces.current().gather

        def join(tensor: Any) -> tf.Tensor:
            tensor = tf.convert_to_tensor(tensor)
            if tensor.shape.rank == 0:
                raise ValueError(
                    "all_gather needs tensors of rank 1 or more: reshape scalars to [1]"
                )
            if tensor.shape.rank is None:
                raise ValueError("all_gather needs tensors whose rank is known")
            if axis % tensor.shape.rank == 0:
                return gather(tensor)
            order = list(range(tensor.shape.rank))
            order.insert(0, order.pop(axis % tensor.shape.rank))
            inverse = [order.index(i) for i in range(len(order))]
            return tf.transpose(gather(tf.transpose(tensor, order)), inverse)

        return tf.nest.map_structure(join, value)

    def _merge_call(self, merge_fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        del args, kwargs
        raise NotImplementedError(
            f"merge_call({getattr(merge_fn, '__name__', merge_fn)}) was called in a replica of a "
            "ParameterServerStrategy, whose replicas run on several machines: use "
            "tf.distribute.get_replica_context().all_reduce(...) and "
            "strategy.extended.update(variable, function, args), or end strategy.run and call the "
            "function on its results"
        )
