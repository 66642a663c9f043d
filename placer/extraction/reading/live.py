"""Programs that are already in this process: functions and Keras models."""

from collections.abc import Iterator, Sequence
from typing import Any

from placer.errors import ModelError, UsageError
from placer.extraction.graph_defs.program import ProgramInput, RawProgram
from placer.extraction.graph_defs.protobufs import dtype_name, live_graph_def
from placer.extraction.input_formats import unreadable
from placer.extraction.reading.composite_inputs import label_by_specs
from placer.extraction.reading.keras_two import base_model
from placer.extraction.reading.saved_functions import output_keys
from placer.extraction.reading.signatures import choose_outputs
from placer.extraction.reading.training_steps import (
    keras_spec,
    keras_variables,
    without_cudnn,
)
from placer.graph.name_scopes import free_name
from placer.graph.tensor_names import op_of, renamed


def is_function(source: Any) -> bool:
    """Whether ``source`` is a ConcreteFunction or the graph of one."""
    from tensorflow.python.framework import func_graph

    return isinstance(source, func_graph.FuncGraph) or _is_concrete(source)


def _is_concrete(source: Any) -> bool:
    return hasattr(source, "graph") and hasattr(source, "structured_outputs")


def is_traceable(source: Any) -> bool:
    """Whether ``source`` is a ``tf.function``."""
    return hasattr(source, "get_concrete_function")


def read_function(source: Any, outputs: Sequence[str] | None) -> RawProgram:
    """The program of a function or of its graph; errors as for :func:`concrete_function`."""
    if not _is_concrete(source) and not is_traceable(source):
        return _read_func_graph(source, outputs, source_format="function")
    function = concrete_function(source)
    model = getattr(function, "model", None)  # of a training step: Keras's names are paths
    paths = {id(v.value.handle): v.path for v in keras_variables(model)} if model else None
    return _read_func_graph(
        function.graph, outputs, source_format="function", function=function, names=paths
    )


def concrete_function(source: Any) -> Any:
    """The ConcreteFunction of a ``tf.function`` or of itself.

    A ``tf.function`` must have an input signature or exactly one trace, else
    :class:`UsageError`.
    """
    if _is_concrete(source):
        return source
    if not is_traceable(source):
        raise unreadable(source)
    if getattr(source, "input_signature", None) is not None:
        return source.get_concrete_function()
    traced: list[Any] = getattr(source, "_list_all_concrete_functions", list)()
    if len(traced) != 1:
        raise UsageError(
            f"the tf.function has {len(traced)} traces and no input_signature, so the program is "
            "not determined: pass function.get_concrete_function(...) instead"
        )
    return traced[0]


def is_keras_model(source: Any) -> bool:
    """Whether ``source`` is a model of Keras 2 or 3 (which is not imported to find out)."""
    return base_model(source) is not None


def read_keras_model(model: Any, outputs: Sequence[str] | None) -> RawProgram:
    """The program of a Keras model's inference."""
    import tensorflow as tf

    names = {id(v.value.handle): v.path for v in model.variables if hasattr(v, "path")}
    graph = trace_keras_model(model).graph
    return _read_func_graph(
        graph,
        outputs,
        source_format="keras",
        names=names,
        input_names=[_input_name(tensor) for tensor in tf.nest.flatten(_keras_inputs(model))],
    )


def trace_keras_model(model: Any) -> Any:
    """The ConcreteFunction of a model's inference on its own input specs.

    It is traced here, not with the model's ``jit_compile``.  Raises :class:`UsageError` if the
    model was never built, so that its inputs are unknown.
    """
    import tensorflow as tf

    if not _of_keras(model, "inputs"):
        raise UsageError(
            f"the inputs of the Keras model {model.name!r} are unknown: call it once, or pass "
            "tf.function(model).get_concrete_function(...)"
        )
    specs = tf.nest.map_structure(
        lambda tensor: keras_spec(tensor, tensor.shape, _input_name(tensor)), _keras_inputs(model)
    )

    def run(values: Any) -> Any:
        return model(values, training=False)

    with without_cudnn(model):
        return tf.function(run, jit_compile=False).get_concrete_function(specs)


def _keras_inputs(model: Any) -> Any:
    """The symbolic inputs of a built model, in their structure (Keras 3's Sequential has none)."""
    structure = _of_keras(model, "input")
    if structure is not None:
        return structure
    return model.inputs[0] if len(model.inputs) == 1 else list(model.inputs)


def _of_keras(model: Any, name: str) -> Any:
    """The attribute; None where Keras says that the model has none, in one way or the other."""
    try:
        return getattr(model, name, None)
    except ValueError:  # Keras 3.5, and a Sequential that was not built
        return None


def _input_name(tensor: Any) -> str | None:
    return op_of(str(tensor.name)) if getattr(tensor, "name", None) else None


def _read_func_graph(
    graph: Any,
    outputs: Sequence[str] | None,
    *,
    source_format: str,
    function: Any = None,
    names: dict[int, str] | None = None,
    input_names: Sequence[str | None] = (),
) -> RawProgram:
    graph_def = live_graph_def(graph, add_shapes=True)
    new_names = _stable_names(graph)
    for node in graph_def.node if new_names else ():
        node.name = new_names.get(node.name, node.name)
        node.input[:] = [renamed(reference, new_names) for reference in node.input]
    captures = {
        new_names.get(inner.op.name, inner.op.name): outer
        for outer, inner in graph.captures
        if inner.op.type == "Placeholder"
    }
    captured = {inner.op.name for _, inner in graph.captures}  # small values became constants
    inputs = [tensor for tensor in graph.inputs if tensor.op.name not in captured]
    structure = (graph if function is None else function).structured_outputs
    keys = output_keys(structure, len(graph.outputs))
    found = dict(zip(keys, (tensor.name for tensor in graph.outputs), strict=True))
    ops = {node.name: node for node in graph_def.node}
    wanted, targets = choose_outputs(found, outputs, ops)
    if not outputs:
        wanted = tuple(found.items())
        targets = tuple(op.name for op in graph.control_outputs)
    if not wanted and not targets:
        raise ModelError("the function has no outputs and no side effects: nothing to place")
    variable_names = {id(v.handle): op_of(v.name) for v in graph.variables}
    return RawProgram(
        graph_def=graph_def,
        inputs=label_by_specs(
            tuple(_program_inputs(inputs)), _argument_specs(graph, function), input_names
        ),
        outputs=wanted,
        targets=targets,
        source_format=source_format,
        signature=graph.name,
        captures=captures,
        variable_names=variable_names | (names or {}),
        chosen_outputs=tuple(outputs or ()),
    )


def _stable_names(graph: Any) -> dict[str, str]:
    """New names for captures that bear a number of this process (``embedding_lookup/12925``),
    which another trace of the same function has not; in the order of the captures."""
    taken = {op.name for op in graph.get_operations()}
    found: dict[str, str] = {}
    for _, inner in graph.captures:
        scope, slash, last = inner.op.name.rpartition("/")
        if last.isdecimal():
            found[inner.op.name] = free_name(f"{scope}{slash}capture", taken)
            taken.add(found[inner.op.name])
    return found


def _program_inputs(tensors: Sequence[Any]) -> Iterator[ProgramInput]:
    taken: set[str] = set()
    for tensor in tensors:
        key = _attribute(tensor.op, "_user_specified_name") or tensor.op.name
        if key in taken:
            key = free_name(key, taken) if tensor.op.name in taken else tensor.op.name
        taken.add(key)
        yield ProgramInput(
            key=key,
            tensor=tensor.name,
            dtype=dtype_name(tensor.dtype.as_datatype_enum),
            shape=None if tensor.shape.rank is None else tuple(tensor.shape.as_list()),
        )


def _argument_specs(graph: Any, function: Any) -> list[Any]:
    """The specs of the arguments, those of ragged and sparse tensors whole."""
    import tensorflow as tf

    signature = getattr(function or graph, "structured_input_signature", None)
    return [spec for spec in tf.nest.flatten(signature) if isinstance(spec, tf.TypeSpec)]


def _attribute(op: Any, name: str) -> str:
    try:
        return bytes(op.get_attr(name)).decode()
    except ValueError:
        return ""
