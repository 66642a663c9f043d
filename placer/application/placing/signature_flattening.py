"""A signature's function with the placed flat graph as its body.

A saved signature calls a wrapper function, which calls others.  Devices could be written into
those bodies, but TensorFlow's inliner then adds control nodes on the default device at every
nested call, which wait for all inputs and send control signals between devices that no plan
predicts, and functions with ``api_implements`` are not inlined at all.  With the flat graph as the
wrapper's body what runs is what was planned, and two paths through one function can differ.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from placer.errors import ModelError
from placer.extraction.graph_defs.added_control import added_control, rename_added_control
from placer.extraction.graph_defs.flat_nodes import rename_hints
from placer.extraction.graph_defs.op_definitions import OpDefinitions, argument_length
from placer.extraction.graph_defs.protobufs import copied
from placer.extraction.graph_defs.rewritten_nodes import released_joins, rename_marks
from placer.graph.tensor_names import split_tensor


def flatten_function(
    function: Any,
    call: Any,
    nodes: Sequence[Any],
    outputs: Mapping[int, str],
    sinks: Iterable[str],
    definitions: OpDefinitions,
) -> None:
    """Replaces the body of ``function``, in place, by the flat ``nodes`` of its call.

    ``call`` is the main graph's call op; names of ``nodes`` begin with ``call.name/``.
    ``outputs`` maps numbers of the function's outputs to flat tensors, ``sinks`` are flat ops that
    run for their side effects.  Raises :class:`ModelError` if an output is missing.
    """
    prefix = f"{call.name}/"
    arguments: dict[str, str] = dict(zip(call.input, argument_names(function, call), strict=False))
    references = _body_references([*nodes, *released_joins(nodes)], definitions)

    def inner(tensor: str) -> str:
        bare = tensor.removeprefix("^")
        control = tensor.removesuffix(bare)
        if bare.startswith(prefix):
            return control + (bare if control else references(bare)).removeprefix(prefix)
        if bare not in arguments:
            raise ModelError(
                f"an op inside {call.name} reads {bare}, which is not an argument of the call"
            )
        return control + arguments[bare]

    results = list(_results(function, call, outputs, inner))
    body = [_body_node(node, prefix, inner, arguments) for node in nodes]
    function.ClearField("node_def")
    function.node_def.extend(body)
    function.ret.clear()
    function.ret.update(results)
    function.control_ret.clear()
    waited = [name.removeprefix(prefix) for name in sinks]
    function.control_ret.update(zip(waited, waited, strict=True))
    function.signature.control_output[:] = waited


def argument_names(function: Any, call: Any) -> list[str]:
    """The body's spelling of each data input of ``call``."""
    names: list[str] = []
    for argument in function.signature.input_arg:
        if argument.number_attr or argument.type_list_attr:
            length = argument_length(argument, call.attr)
            names.extend(f"{argument.name}:{number}" for number in range(length))
        else:
            names.append(argument.name)
    return names


def _results(
    function: Any, call: Any, outputs: Mapping[int, str], inner: Any
) -> Iterator[tuple[str, str]]:
    for number, argument in enumerate(function.signature.output_arg):
        if argument.number_attr or argument.type_list_attr or number not in outputs:
            raise ModelError(
                f"output {argument.name} of the call {call.name} is not in the program"
            )
        yield argument.name, inner(outputs[number])


def _body_node(node: Any, prefix: str, inner: Any, arguments: Mapping[str, str]) -> Any:
    copy = copied(node)
    copy.name = node.name.removeprefix(prefix)
    copy.input[:] = [inner(name) for name in node.input]
    rename_added_control(copy, [inner(f"^{name}")[1:] for name in added_control(node)])
    rename_marks(copy, inner)
    rename_hints(
        copy,
        lambda name: (
            name.removeprefix(prefix) if name.startswith(prefix) else arguments.get(name, "")
        ),
    )
    return copy


def _body_references(nodes: Iterable[Any], definitions: OpDefinitions) -> Callable[[str], str]:
    """Spells tensors of a GraphDef (``a``, ``a:1``) as a FunctionDef does: ``a:output_name:0``.

    Raises :class:`ModelError` if the op type of a producer is unknown.
    """
    by_name = {node.name: node for node in nodes}

    @cache
    def outputs(producer: str) -> list[str]:
        node = by_name[producer]
        definition = definitions.find(node.op)
        if definition is None:
            raise ModelError(
                f"op type {node.op} of {node.name} is neither known to this TensorFlow nor "
                f"described in the model; import the package that registers it first"
            )
        return [
            f"{producer}:{argument.name}:{position}"
            for argument in definition.output_arg
            for position in range(argument_length(argument, node.attr))
        ]

    def spelled(tensor: str) -> str:
        producer, index = split_tensor(tensor)
        return outputs(producer)[index]

    return spelled
