"""Copies computations from one graph into another: to a server, or out of a branch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from tf_rdmabatch.strategy import _tensorflow as private

# What stands for a tensor, or None where its op is to be copied.
Resolve = Callable[[tf.Tensor], tf.Tensor | None]
Done = dict[Any, tf.Tensor]


def sources(tensor: tf.Tensor) -> Sequence[tf.Tensor]:
    """Return what a tensor is computed from.

    tf.distribute and custom gradients tie results together with IdentityN, each of whose outputs
    is one of the inputs.
    """
    if tensor.op.type == "IdentityN":
        return [tensor.op.inputs[tensor.value_index]]
    return tensor.op.inputs  # type: ignore[no-any-return]


def copy_into_current_graph(tensor: tf.Tensor, resolve: Resolve, done: Done) -> tf.Tensor:
    """Return `tensor`, of another graph, computed in the current one.

    Parameters
    ----------
    tensor
        What to compute.
    resolve
        Says what stands for the tensors that it is computed from.
    done
        What was copied before, extended.

    Raises
    ------
    NotImplementedError
        It takes an op with state, of which there can be but one.
    """
    stack = [tensor]
    while stack:
        current = stack[-1]
        if current.ref() in done:
            stack.pop()
            continue
        stand_in = resolve(current)
        if stand_in is not None:
            done[current.ref()] = stand_in
            continue
        missing = [i for i in sources(current) if i.ref() not in done]
        if missing:
            stack.extend(missing)
            continue
        if current.op.type == "IdentityN":
            done[current.ref()] = done[sources(current)[0].ref()]
            continue
        if private.is_stateful(current.op):
            raise NotImplementedError(
                f"{current.op.type} ({current.op.name}) cannot be moved to where its result is "
                "needed, out of a branch or to after an update: compute it before the tf.cond, or "
                "in a strategy.run of its own"
            )
        inputs = [done[i.ref()] for i in current.op.inputs]
        with tf.device(_common_device(inputs)):
            copies = private.copy_op(current.op, inputs)
        done.update((o.ref(), c) for o, c in zip(current.op.outputs, copies, strict=True))
    return done[tensor.ref()]


def _common_device(inputs: Iterable[tf.Tensor]) -> str | None:
    """Return where all inputs are: what is computed from one server's tensors stays there."""
    devices = {i.device for i in inputs}
    return devices.pop() if len(devices) == 1 else None


def hoist(tensor: tf.Tensor, graph: Any) -> tf.Tensor:
    """Return `tensor`, of a branch within `graph`, computed in `graph` whether the branch is taken.

    Parameters
    ----------
    tensor
        Of `graph` or of a branch in it; what belongs to no graph is returned as it is.
    graph
        Of the replica.

    Raises
    ------
    NotImplementedError
        It is of a tf.function or a loop, which may be run any number of times.
    """
    if not private.is_graph_tensor(tensor) or tensor.graph is graph:
        return tensor
    if not private.is_branch(tensor.graph):
        raise NotImplementedError(
            f"{tensor.name} of the nested tf.function or loop {tensor.graph.name} is all-reduced, "
            "gathered or given to an update in it: do that in the function that strategy.run calls "
            "(remove the inner @tf.function, or move it out of the loop)"
        )
    outer = {internal.ref(): external for external, internal in tensor.graph.captures}

    def resolve(current: tf.Tensor) -> tf.Tensor | None:
        external = outer.get(current.ref())
        return None if external is None else hoist(external, graph)

    with private.outside_dependencies(graph):
        return copy_into_current_graph(tensor, resolve, {})


class Dependence:
    """Which tensors of a graph depend on others.

    Parameters
    ----------
    names
        Of the ops whose outputs are depended on.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._known: dict[str, bool] = dict.fromkeys(names, True)

    def __call__(self, tensor: tf.Tensor) -> bool:
        """Return whether `tensor` depends on one of them."""
        stack = [tensor.op]
        while stack:
            op = stack[-1]
            sources = [i.op for i in op.inputs]
            unknown = [s for s in sources if s.name not in self._known]
            if op.name in self._known:
                stack.pop()
            elif unknown:
                stack.extend(unknown)
            else:
                self._known[op.name] = any(self._known[s.name] for s in sources)
                stack.pop()
        return self._known[tensor.op.name]
