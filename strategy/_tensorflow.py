"""All that the strategy uses of TensorFlow's private interfaces, checked with TensorFlow 2.21.

Beside each import and in each function stands what is relied on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

# AttrValue: how an op keeps an attribute.
from tensorflow.core.framework import attr_value_pb2

# InternalPlaceholderContext: how a TypeSpec makes a placeholder in a graph.
from tensorflow.core.function.trace_type import trace_type_builder

# compute_batch_size: what the other strategies cut batches by.
from tensorflow.python.data.experimental.ops import distribute as distribute_data

# The subclassed strategy and its Extended's hooks; ReplicaContext and UpdateContext.
# DistributedIterator: the class whose instances Keras iterates inside its tf.function.
# CachingVariable: a variable's wrapper that forwards to `_v`, operators and checkpoints included.
# PerReplica: its `_values`, which a subclass may compute.
# ShardedVariable: its `_variables`, `_shape` and `_saving_variable`, and what it offers users.
from tensorflow.python.distribute import distribute_lib, input_lib, ps_values, values
from tensorflow.python.distribute import parameter_server_strategy_v2 as pss
from tensorflow.python.distribute.sharded_variable import ShardedVariable

# record_operation and variable_accessed: how a pull is a variable's read to a GradientTape.
from tensorflow.python.eager import context, record, tape

# FuncGraph.outer_graph, is_control_flow_graph and captures.
from tensorflow.python.framework import ops, tensor_conversion_registry

# GraphOrParentsInXlaContext: whether XLA compiles a graph.
# default_variable_creator_v2: what creates variables where nobody else wants to.
# UninitializedVariable and write_object_proto_for_resource_variable: how variables are saved.
# ResourceVariableGradient: the gradient of a variable is that of what has its handle.
from tensorflow.python.ops import control_flow_util, resource_variable_ops

# CondBranchFuncGraph: the graph of a branch.
from tensorflow.python.ops import control_flow_v2_func_graphs as control_flow_graphs
from tensorflow.python.ops.resource_variable_ops import ResourceVariableGradient as VariableGradient

# The name of a variable's value in a checkpoint.
from tensorflow.python.trackable.base import VARIABLE_VALUE_KEY

__all__ = [
    "VARIABLE_VALUE_KEY",
    "ShardedVariable",
    "VariableGradient",
    "context",
    "distribute_lib",
    "input_lib",
    "ps_values",
    "pss",
    "values",
]


def current_graph() -> Any:
    """Return the graph that ops are added to; in eager mode an empty one."""
    return ops.get_default_graph()


def current_device() -> str:
    """Return the device that eager ops run on."""
    return str(context.context().device_name)


def is_control_flow_graph(graph: Any) -> bool:
    """Return whether `graph` is a branch or a loop, and not a tf.function."""
    return bool(getattr(graph, "is_control_flow_graph", False))


@contextlib.contextmanager
def outside_dependencies(graph: Any) -> Iterator[None]:
    """Add ops to `graph`, which may be an outer one, free of the caller's control dependencies."""
    with graph.as_default(), tf.control_dependencies(None):
        yield


def placeholder(dtype: tf.DType, shape: tf.TensorShape, name: str) -> tf.Tensor:
    """Return a tensor of the current graph that nothing feeds: it stands for another."""
    return tf.raw_ops.Placeholder(dtype=dtype, shape=shape, name=name)


def record_read(value: tf.Tensor, sources: Sequence[tuple[Any, Callable[[Any], Any]]]) -> tf.Tensor:
    """Return `value`, which tapes then take for a read of variables.

    Parameters
    ----------
    value
        What was read.
    sources
        The variables, and what turns a gradient of the value into theirs.
    """
    for variable, _ in sources:
        if variable.trainable:
            tape.variable_accessed(variable)
    read = tf.identity(value)
    record.record_operation(
        "ReadVariableOp",
        [read],
        [variable.handle for variable, _ in sources],
        backward_function=lambda gradient: [function(gradient) for _, function in sources],
        forward_function=lambda *tangents: [tangents[0]],
    )
    return read


def late_capture(
    graph: Any, key: Any, closure: Callable[[], tf.Tensor], spec: tf.TensorSpec
) -> tf.Tensor:
    """Return a placeholder in a tf.function's graph that each of its calls feeds with a closure.

    FuncGraph.capture_call_time_value would evaluate it only in the outermost caller, where the
    tapes of the others do not see the read.
    """
    captures = graph._function_captures
    if key not in captures.by_ref_internal:

        def evaluate() -> Sequence[tf.Tensor]:
            return spec.to_tensors(closure())  # type: ignore[no-any-return]

        evaluate.output_spec = spec  # type: ignore[attr-defined]
        captures.add_or_replace(
            key=key,
            external=evaluate,
            internal=spec.placeholder_value(trace_type_builder.InternalPlaceholderContext(graph)),
            tracetype=spec,
            is_by_ref=True,
        )
    value: tf.Tensor = captures.by_ref_internal[key]
    return value


def call(function: Any, inputs: Sequence[Any], captures: Sequence[Any]) -> list[tf.Tensor]:
    """Add a call of a ConcreteFunction in which other tensors stand for those it captured."""
    return list(function.inference_fn.call_flat(*inputs, *captures) or ())


def captured_inputs(function: Any) -> list[tf.Tensor]:
    """Return the tensors that a ConcreteFunction captured."""
    return list(function.captured_inputs)


def copy_op(op: Any, inputs: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
    """Add a copy of `op`, with other inputs, to the current graph and return its outputs."""
    graph = ops.get_default_graph()
    attributes = dict(op.node_def.attr)
    # Colocation with the original's neighbours, which are elsewhere.
    attributes.pop("_class", None)
    for value in attributes.values():
        if value.HasField("func"):
            graph._add_function_recursive(op.graph._get_function(value.func.name))
    copy = graph._create_op_internal(
        op.type, list(inputs), [output.dtype for output in op.outputs], attrs=attributes
    )
    return copy.outputs  # type: ignore[no-any-return]


def register_tensor_conversion(cls: type) -> None:
    """Let instances of a variable's wrapper be used where a tensor is expected."""
    tensor_conversion_registry.register_tensor_conversion_function(
        cls,
        lambda variable, dtype=None, name=None, as_ref=False: variable._dense_var_to_tensor(
            dtype, name, as_ref
        ),
    )


def declare_reader(op: Any) -> None:
    """Let automatic control dependencies take an op for one that writes none of its resources.

    They find the inputs that it only reads in this attribute.
    """
    inputs = attr_value_pb2.AttrValue.ListValue(i=range(len(op.inputs)))
    op._set_attr("_read_only_resource_inputs", attr_value_pb2.AttrValue(list=inputs))


def no_colocation() -> Any:
    """Return a context in which ops are placed apart from others."""
    return ops.colocate_with(None, ignore_existing=True)


def compute_batch_size(dataset: tf.data.Dataset) -> tf.Tensor:
    """Return the number of rows of a dataset's batches but the last, -1 if it cannot be known."""
    return distribute_data.compute_batch_size(dataset)


def is_graph_tensor(value: Any) -> bool:
    """Return whether `value` is a tensor of a graph; variables and eager tensors are not."""
    return isinstance(value, tf.Tensor) and not isinstance(value, ops.EagerTensor)


def is_stateful(op: Any) -> bool:
    """Return whether an op has effects or state, and so may be run but once."""
    return bool(op._is_stateful)


def is_branch(graph: Any) -> bool:
    """Return whether `graph` is a branch of a tf.cond."""
    return isinstance(graph, control_flow_graphs.CondBranchFuncGraph)


def condition_of(branch: Any) -> tuple[tf.Tensor, bool, Any]:
    """Return the predicate of a branch's tf.cond, the value that takes the branch, and its graph.

    The op knows its branches as functions that have the graphs' names.
    """
    outer = branch.outer_graph
    for op in outer.get_operations():
        if op.type in ("If", "StatelessIf"):
            for attribute, taken_if in (("then_branch", True), ("else_branch", False)):
                if op.node_def.attr[attribute].func.name == branch.name:
                    return op.inputs[0], taken_if, outer
    raise RuntimeError(f"the tf.cond of the branch {branch.name} was not found in its graph")


def python_function(function: Any) -> Any:
    """Return what a tf.function traces, as AutoGraph converts it; other functions as they are.

    Function.python_function and ._autograph; tf_convert is what Strategy.run converts with.
    """
    if not isinstance(function, tf.types.experimental.PolymorphicFunction):
        return function
    if not function._autograph:
        return tf.autograph.experimental.do_not_convert(function.python_function)
    context = tf.__internal__.autograph.control_status_ctx()
    return tf.__internal__.autograph.tf_convert(function.python_function, context)


def is_compiled(graph: Any) -> bool:
    """Return whether a graph is of a tf.function with jit_compile=True, or nested in one."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(graph))


def create_variable(**kwargs: Any) -> tf.Variable:
    """Create a plain variable."""
    return resource_variable_ops.default_variable_creator_v2(None, **kwargs)


def stand_in(variable: Any) -> Any:
    """Return a variable without a value, of that shape and dtype, of the current graph."""
    return resource_variable_ops.UninitializedVariable(
        trainable=variable.trainable,
        shape=variable.shape,
        dtype=variable.dtype,
        name=variable.name.partition(":")[0],
    )


def describe_variable(variable: Any, proto: Any, options: Any) -> None:
    """Fill in what a SavedModel says of a variable."""
    resource_variable_ops.write_object_proto_for_resource_variable(variable, proto, options)


def keep_functions(kept: bool) -> None:
    """Keep functions that nobody uses any more in the runtime, or remove them again.

    A function's end removes it by `Context.remove_function`, which tells each remote task that has
    it, and waits for the answer with Python's lock held: 20 s where the task's host is gone.
    """
    runtime = context.context()
    if kept:
        runtime.remove_function = lambda name: None  # noqa: ARG005
    else:
        vars(runtime).pop("remove_function", None)


def refuse_in_replica(what: str) -> None:
    """Raise an error if the caller is in a replica."""
    context = distribute_lib.get_replica_context()
    if context is not None and distribute_lib.has_strategy():
        raise ValueError(
            f"{what} was called in a replica: call it outside, as in "
            "strategy.run(function, args=(next(iterator),))"
        )
