"""Evaluates on a server what a replica computes from values that only servers know."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from tf_rdmabatch.strategy import _tensorflow as private


class Lifter:
    """Copies ops of a replica's graph into the current one.

    Parameters
    ----------
    pending
        Names of the replica's ops whose outputs only servers know.
    """

    def __init__(self, pending: Iterable[str]) -> None:
        self._depends: dict[str, bool] = dict.fromkeys(pending, True)

    def depends(self, tensor: tf.Tensor) -> bool:
        """Return whether a tensor of the replica's graph depends on a pending one."""
        stack = [tensor.op]
        while stack:
            op = stack[-1]
            if op.name in self._depends:
                stack.pop()
                continue
            sources = [i.op for i in op.inputs]
            unknown = [s for s in sources if s.name not in self._depends]
            if unknown:
                stack.extend(unknown)
                continue
            self._depends[op.name] = any(self._depends[s.name] for s in sources)
            stack.pop()
        return self._depends[tensor.op.name]

    def leaves(self, tensor: tf.Tensor) -> list[tf.Tensor]:
        """Return what `tensor` is computed from: pending tensors, and those that depend on none."""
        found: dict[Any, tf.Tensor] = {}
        seen = set()
        stack = [tensor]
        while stack:
            current = stack.pop()
            if current.ref() in seen:
                continue
            seen.add(current.ref())
            if self._is_leaf(current):
                found[current.ref()] = current
            else:
                stack.extend(reversed(current.op.inputs))
        return list(found.values())

    def _is_leaf(self, tensor: tf.Tensor) -> bool:
        return not self.depends(tensor) or not tensor.op.inputs

    def lift(self, tensor: tf.Tensor, resolve: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        """Return `tensor` computed in the current graph.

        Parameters
        ----------
        tensor
            Of the replica's graph.
        resolve
            Returns what stands for a leaf.

        Raises
        ------
        NotImplementedError
            It takes an op with state.
        """
        done: dict[Any, tf.Tensor] = {}
        stack = [tensor]
        while stack:
            current = stack[-1]
            if current.ref() in done:
                stack.pop()
            elif self._is_leaf(current):
                done[current.ref()] = resolve(current)
            else:
                missing = [i for i in current.op.inputs if i.ref() not in done]
                if missing:
                    stack.extend(missing)
                else:
                    copies = private.copy_op(current.op, [done[i.ref()] for i in current.op.inputs])
                    done.update((o.ref(), c) for o, c in zip(current.op.outputs, copies, strict=True))
        return done[tensor.ref()]
