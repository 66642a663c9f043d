"""A ConcreteFunction from a flat GraphDef, without tracing anything again."""

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.core.function.polymorphism import function_type
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import concrete_function as functions
from tensorflow.python.framework import func_graph, importer, ops
from tensorflow.python.ops import handle_data_util

from placer.extraction.graph_defs.op_definitions import called_functions
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.protobufs import Captures
from placer.graph.tensor_names import source_of


@dataclass(frozen=True, kw_only=True)
class FunctionEnds:
    """The tensors that are fed and returned, the ops that must run; names of the graph."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    sinks: tuple[str, ...]


def find_ends(program: FlatProgram) -> FunctionEnds:
    """The ends of a flat program.

    Sinks are the ops that run for their side effects, and those that nothing else would keep.
    """
    read = {source_of(name) for node in program.graph_def.node for name in node.input}
    read |= {*program.output_ops, *program.fed_ops, *program.captures}
    unread = [node.name for node in program.graph_def.node if node.name not in read]
    return FunctionEnds(
        inputs=tuple(item.tensor for item in program.inputs),
        outputs=tuple(tensor for _, tensor in program.outputs),
        sinks=tuple(dict.fromkeys([*program.targets, *unread])),
    )


def build_function(
    graph_def: Any,
    ends: FunctionEnds,
    captures: Captures,
    original: Any = None,
    variables: Sequence[Any] = (),
) -> Any:
    """A fresh ConcreteFunction that runs ``graph_def`` (which is changed) node by node.

    ``captures`` maps placeholders to the tensors they stand for.  It has the signature of the
    ConcreteFunction ``original``; without one, it takes and returns flat lists of tensors.
    ``variables`` are those behind captured handles, for gradient tapes to watch.
    """
    captures = dict(_once_each(graph_def, captures))
    registered = _register_functions(graph_def)
    graph = func_graph.FuncGraph("placed")
    with graph.as_default():
        importer.import_graph_def(graph_def, name="")
        _set_ends(graph, ends, captures)
        signature = _set_structure(graph, ends, original)
    function = functions.ConcreteFunction.from_func_graph(graph, signature, attrs={})
    function.set_variables(variables)
    for name in registered:
        weakref.finalize(function, context.remove_function, name)
    return function


def _once_each(graph_def: Any, captures: Captures) -> Iterator[tuple[str, Any]]:
    """The captures; those of one tensor under several names are joined into the first, in place."""
    first: dict[int, str] = {}
    second: dict[str, str] = {}
    for name, value in captures.items():
        if id(value) in first:
            second[name] = first[id(value)]
        else:
            first[id(value)] = name
            yield name, value
    for node in graph_def.node:
        node.input[:] = [second.get(name, name) for name in node.input]


def _register_functions(graph_def: Any) -> list[str]:
    """Renames every library function to a name no other program has, and registers it.

    Unrenamed, bodies that the process already knows could run instead; unregistered, calling them
    from a graph that is imported into a function crashes the process.
    """
    suffix = f"_{ops.uid()}"
    names = {f.signature.name: f.signature.name + suffix for f in graph_def.library.function}
    rename_functions(graph_def, names)
    for function in graph_def.library.function:
        context.context().add_function_def(function)
    return list(names.values())


def _set_ends(graph: Any, ends: FunctionEnds, captures: Captures) -> None:
    """Declares which tensors of ``graph`` are inputs, captures and outputs."""
    graph.inputs = [graph.get_tensor_by_name(name) for name in ends.inputs]
    for name, value in captures.items():
        placeholder = graph.get_tensor_by_name(f"{name}:0")
        handle_data_util.copy_handle_data(value, placeholder)
        graph.add_capture(value, placeholder)
    graph.outputs = [graph.get_tensor_by_name(name) for name in ends.outputs]
    graph.control_outputs = [graph.get_operation_by_name(name) for name in ends.sinks]


def _set_structure(graph: Any, ends: FunctionEnds, original: Any) -> Any:
    """Gives ``graph`` the signature of ``original``, else flat lists; returns its type."""
    captures = graph.function_captures.capture_types
    if original is not None:
        graph.structured_input_signature = original.structured_input_signature
        graph.structured_outputs = original.structured_outputs
        signature = original.function_type
        return function_type.FunctionType(
            signature.parameters.values(), captures, return_annotation=signature.output
        )
    specs = [tf.TensorSpec(t.shape, t.dtype) for t in graph.inputs[: len(ends.inputs)]]
    graph.structured_input_signature = (tuple(specs), {})
    graph.structured_outputs = list(graph.outputs)
    return function_type.from_structured_signature(
        graph.structured_input_signature, graph.structured_outputs, captures
    )


def _rename_calls(nodes: Iterable[Any], new_names: Mapping[str, str]) -> None:
    """Replaces function names in op types and attributes, in place."""
    for node in nodes:
        node.op = new_names.get(node.op, node.op)
        for _, function in called_functions(node):
            function.name = new_names.get(function.name, function.name)


def rename_functions(graph_def: Any, new_names: Mapping[str, str]) -> None:
    """Renames library functions and every reference to them, in place."""
    library = graph_def.library
    for function in library.function:
        function.signature.name = new_names.get(function.signature.name, function.signature.name)
        _rename_calls(function.node_def, new_names)
    for gradient in library.gradient:
        gradient.function_name = new_names.get(gradient.function_name, gradient.function_name)
        gradient.gradient_func = new_names.get(gradient.gradient_func, gradient.gradient_func)
    _rename_calls(graph_def.node, new_names)
