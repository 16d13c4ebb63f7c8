"""What each worker does in a round: pull, run its virtual replicas one after the other, push."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tf_rdmabatch import ops
from tf_rdmabatch.strategy import _tensorflow as private
from tf_rdmabatch.strategy import wire
from tf_rdmabatch.strategy.parameters import Handles
from tf_rdmabatch.strategy.plan import Plan
from tf_rdmabatch.strategy.replica_context import VirtualReplicaContext
from tf_rdmabatch.strategy.trace import ReplicaTrace
from tf_rdmabatch.strategy.values import MicroBatches, WorkerBatches


@dataclass
class WorkerProgram:
    """The program of every worker, traced once.

    Parameters
    ----------
    function
        Its ConcreteFunction. Its first result is the worker's report of the round.
    plan
        What the servers have to do for it.
    outputs
        How the replica function's results are put together from the function's outputs.
    """

    function: Any
    plan: Plan
    outputs: ReplicaOutputs


@dataclass
class ReplicaOutputs:
    """A replica function's result, and what of it the workers return.

    Parameters
    ----------
    structure
        The result, with tensors of the replica's graph.
    returned
        The tensors that workers return: those of the result, but what servers have to compute, and
        what they compute it from.
    """

    structure: Any = None
    returned: list[tf.Tensor] = field(default_factory=list)

    @property
    def stacked(self) -> list[bool]:
        """Of each returned tensor whether all replicas' have one shape."""
        return [t.shape.is_fully_defined() for t in self.returned]

    @property
    def tensors(self) -> list[tf.Tensor]:
        """The tensors of the result."""
        flat = tf.nest.flatten(self.structure, expand_composites=True)
        return [t for t in flat if private.is_graph_tensor(t)]

    def finish(self, plan: Plan) -> None:
        """Find out what is returned, after the plan was finished."""
        for tensor in self.tensors:
            wanted = [tensor]
            if plan.depends(tensor):
                wanted = [
                    t
                    for t in plan.leaves(tensor)
                    if t.op.name not in plan.trace.pending and plan.variable_read(t) is None
                ]
            self._return(wanted)
        self._return(plan.gathered)

    def _return(self, tensors: Sequence[tf.Tensor]) -> None:
        self.returned += [t for t in tensors if all(t is not r for r in self.returned)]


def trace_worker_program(
    strategy: Any, function: Callable[..., Any], inputs: Sequence[MicroBatches]
) -> WorkerProgram:
    """Trace the program that runs `function` once for each of a worker's replicas.

    Parameters
    ----------
    strategy
        The strategy that it runs under.
    function
        Called with a replica's values of `inputs`.
    inputs
        Of all workers; the program takes a part of them.
    """
    extended = strategy.extended
    # WorkerBatches become the MicroBatches that each worker has.
    inputs = [i.on_worker(0) if isinstance(i, WorkerBatches) else i for i in inputs]
    part_specs = [tf.type_spec_from_value(i) for i in inputs]
    handles: Any = None
    # Of the last trace: a tf.function traces again where the first time created variables.
    plan, outputs = Plan(ReplicaTrace(0), extended.parameters), ReplicaOutputs()

    def replica(scalars: Any, micro_step: Any, *tensors: Any) -> Any:
        nonlocal plan, outputs
        trace = ReplicaTrace(strategy.num_replicas_in_sync)
        plan, outputs = Plan(trace, extended.parameters), ReplicaOutputs()
        number = Scalars(scalars).first + micro_step
        context = VirtualReplicaContext(strategy, tf.cast(number, tf.int32))
        values = _pack([i.value_spec for i in inputs], tensors)
        with trace.activate(handles.graph, private.current_graph(), number), context:
            outputs.structure = _own(function(*values), private.current_graph())
            plan.finish([number, *tensors], outputs.tensors)
        outputs.finish(plan)
        _push(plan, handles, Scalars(scalars), micro_step)
        return outputs.returned

    def program(scalars: Any, anchor: Any, *tensors: Any) -> Any:
        del anchor
        nonlocal handles
        handles = Handles(private.current_graph())
        parts = _pack(part_specs, tensors)
        specs = _flat_specs([i.value_spec for i in inputs])
        one = tf.function(replica, autograph=False).get_concrete_function(
            _SCALARS, tf.TensorSpec([], tf.int64), *specs
        )
        numbers = Scalars(scalars)
        captures = _pulled(plan, one, handles, numbers.round)
        _push_nothing(plan, handles, numbers)

        def run_one(micro_step: Any) -> list[tf.Tensor]:
            values = [part.value_of(micro_step) for part in parts]
            flat = tf.nest.flatten(values, expand_composites=True)
            with tf.control_dependencies(_delay(captures) if extended.slowed else []):
                return private.call(one, [scalars, micro_step, *flat], captures)

        results = _run_all(run_one, numbers.micro_steps, one.outputs, outputs.stacked)
        with tf.control_dependencies(results):
            end = _end_reading(plan, handles, extended.parameters.readings, numbers.round)
        with tf.control_dependencies([*results, *end]):
            report = ops.round_report(numbers.round)
        return [report, *results[1:]]

    anchor = tf.TensorSpec([], tf.resource)
    specs = [_any_rows(s) for s in _flat_specs(part_specs)]
    # Inlined into the chief's graph, its control flow would be led from there, over gRPC.
    whole = tf.function(program, autograph=False, experimental_attributes={"_noinline": True})
    concrete = whole.get_concrete_function(_SCALARS, anchor, *specs)
    plan.serve()
    return WorkerProgram(concrete, plan, outputs)


class Scalars:
    """The numbers that a worker gets for a round, in one tensor.

    Parameters
    ----------
    packed
        int64: the round's number, which is the version to pull and the step to push to, the number
        of the worker's first replica, and how many it runs.
    """

    def __init__(self, packed: tf.Tensor) -> None:
        self.round, self.first, self.micro_steps = tf.unstack(packed, num=3)


_SCALARS = tf.TensorSpec([3], tf.int64)


def _own(result: Any, graph: Any) -> Any:
    """Return a replica function's result in which all tensors are of the replica's graph."""

    def own(leaf: Any) -> Any:
        if isinstance(leaf, tf.Operation):
            return None
        return tf.identity(leaf) if isinstance(leaf, tf.Tensor) else leaf

    with graph.as_default():
        return tf.nest.map_structure(own, result)


def _flat_specs(specs: Sequence[Any]) -> list[tf.TensorSpec]:
    return list(tf.nest.flatten(list(specs), expand_composites=True))


def _pack(specs: Sequence[Any], tensors: Sequence[tf.Tensor]) -> list[Any]:
    packed: list[Any] = tf.nest.pack_sequence_as(list(specs), list(tensors), expand_composites=True)
    return packed


def _any_rows(spec: tf.TensorSpec) -> tf.TensorSpec:
    """Return the spec of some of the rows: workers get different numbers of them."""
    shape = [None, *spec.shape[1:]] if spec.shape.rank else spec.shape
    return tf.TensorSpec(shape, spec.dtype)


def _pulled(plan: Plan, one: Any, handles: Handles, version: tf.Tensor) -> list[tf.Tensor]:
    """Pull what the replica reads; return what stands for the tensors that it captured."""
    pulled = {
        id(pack): ops.pull(handles(pack.parameter), version, copy=False) for pack in plan.pulled
    }
    values = {}
    for variable, stand_in in plan.trace.pulls.values():
        pack, number = plan.place(variable)
        values[id(stand_in)] = wire.decode(pulled[id(pack)][number], variable.dtype)
    return [values.get(id(t), t) for t in private.captured_inputs(one)]


def _delay(captures: Sequence[tf.Tensor]) -> list[tf.Operation]:
    """Wait as a slow worker computes: after what it pulls is there."""
    there = [tf.identity(c) for c in captures if c.dtype != tf.resource]
    with tf.control_dependencies(there):
        return [ops.delay()]


def _end_reading(
    plan: Plan, handles: Handles, readings: Sequence[ops.Parameter], version: tf.Tensor
) -> list[tf.Operation]:
    """Tell the servers that nothing here reads their memory any more, and return what does."""
    if not plan.pulled:
        return []
    release = ops.release([handles(pack.parameter) for pack in plan.pulled])
    with tf.control_dependencies([release]):
        servers = {pack.server for pack in plan.pulled}
        return [ops.push_nothing([handles(readings[i]) for i in sorted(servers)], version)]


def _push(plan: Plan, handles: Handles, numbers: Scalars, micro_step: Any) -> None:
    for pack in plan.pushed:
        ops.push(
            handles(pack.parameter),
            [wire.encode(c.value, c.item.label) for c in pack.members],
            numbers.round,
            micro_step,
            numbers.micro_steps,
            reduction="first" if pack.first else "sum",
            first_replica=numbers.first,
        )


def _push_nothing(plan: Plan, handles: Handles, numbers: Scalars) -> None:
    """Contribute nothing, on a worker without replicas."""
    pushed = [handles(pack.parameter) for pack in plan.pushed]
    if pushed:
        tf.cond(
            tf.equal(numbers.micro_steps, 0),
            lambda: tf.group(ops.push_nothing(pushed, numbers.round)),
            tf.no_op,
        )


def _run_all(
    run_one: Callable[[Any], list[tf.Tensor]],
    micro_steps: tf.Tensor,
    outputs: Sequence[tf.Tensor],
    stacked: Sequence[bool],
) -> list[tf.Tensor]:
    """Run the replicas in turn.

    Returns
    -------
    list of tf.Tensor
        How many ran; each output of all; the rows of those that differ.
    """
    count = tf.cast(micro_steps, tf.int32)
    results = [
        _array(o.dtype, count, o.shape if s else [None, *(o.shape[1:] if o.shape.rank else [])])
        for o, s in zip(outputs, stacked, strict=True)
    ]
    rows = [_array(tf.int64, count, []) for s in stacked if not s]

    def body(micro_step: Any, results: Any, rows: Any) -> Any:
        values = run_one(micro_step)
        index = tf.cast(micro_step, tf.int32)
        counts = [tf.shape(v, tf.int64)[0] for v, s in zip(values, stacked, strict=True) if not s]
        return (
            micro_step + 1,
            [a.write(index, v) for a, v in zip(results, values, strict=True)],
            [a.write(index, c) for a, c in zip(rows, counts, strict=True)],
        )

    ran, results, rows = tf.while_loop(
        lambda micro_step, *_: micro_step < micro_steps,
        body,
        [tf.constant(0, tf.int64), results, rows],
        parallel_iterations=1,
    )
    joined = [a.stack() if s else a.concat() for a, s in zip(results, stacked, strict=True)]
    return [ran, *joined, *(a.stack() for a in rows)]


def _array(dtype: tf.DType, size: tf.Tensor, shape: Any) -> tf.TensorArray:
    return tf.TensorArray(dtype, size, element_shape=shape, infer_shape=False)
