"""NodeDefs that a plan rewrote: they are marked, to be known again.

Added ops are marked, ops that read something else than they did keep the names of what that was,
and a join that is released stays, although nothing reads it and it does not run.  Extraction takes
all of it back, so that a program keeps its fingerprint when a plan is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from placer.errors import UsageError
from placer.extraction.graph_defs.added_control import remove_added_control
from placer.extraction.graph_defs.op_definitions import OpDefinitions
from placer.extraction.graph_defs.protobufs import all_nodes, copied
from placer.extraction.graph_defs.tensor_types import output_types
from placer.graph.rewriting import Rewriting, Wiring, rewire
from placer.graph.tensor_names import (
    data_inputs,
    full_tensor,
    is_control,
    short_tensor,
    split_tensor,
)

ADDED = "_placer_rewritten_source"
"""The attribute of an op that is added, which names the op whose value it has."""

INPUTS = "_placer_rewritten_inputs"
"""The attribute of an op that reads other tensors than it did, with those that it read."""

RELEASED = "_placer_rewritten_join"
"""The attribute of a join of gradients that is read through."""


def rewrite_nodes(
    nodes: Iterable[Any], rewriting: Rewriting, definitions: OpDefinitions
) -> list[Any]:
    """The rewritten nodes, producers first; those that differ from ``nodes`` are copies.

    Raises :class:`UsageError` as :func:`placer.graph.rewriting.rewire`, and for a clone of an op
    with state.
    """
    given = {node.name: node for node in nodes}
    wirings = {
        name: Wiring(
            op_type=node.op,
            inputs=tuple(map(full_tensor, data_inputs(node.input))),
            control_inputs=tuple([text[1:] for text in node.input if is_control(text)]),
        )
        for name, node in given.items()
    }
    for clone in rewriting.clones:
        definition = definitions.find(given[clone.op].op) if clone.op in given else None
        if definition is not None and definition.is_stateful:
            raise UsageError(
                f"the plan computes {clone.op} ({given[clone.op].op}) twice, which has state"
            )
    found = rewire(wirings, rewriting, kept=rewriting.released)
    return [
        given[name]
        if wiring is wirings.get(name) and name not in rewriting.released
        else _rewritten(given, name, wiring, rewriting.released, definitions)
        for name, wiring in found.items()
    ]


def _rewritten(
    given: Mapping[str, Any],
    name: str,
    wiring: Wiring,
    released: Collection[str],
    definitions: OpDefinitions,
) -> Any:
    source = given[wiring.source or name]
    inputs = [short_tensor(*split_tensor(tensor)) for tensor in wiring.inputs]
    node = copied(source)
    if wiring.source:
        if wiring.op_type != source.op:
            (tensor,) = wiring.inputs
            _make_identity(node, source, split_tensor(tensor)[1], definitions)
        node.name = name
        node.attr.pop("_class", None)
        node.attr[ADDED].s = wiring.source.encode()
    else:
        if name in released:
            node.attr[RELEASED].b = True
        if inputs != data_inputs(source.input):
            mark_inputs(node, data_inputs(source.input))
    node.input[:] = [*inputs, *(f"^{op}" for op in wiring.control_inputs)]
    return node


def _make_identity(node: Any, source: Any, output: int, definitions: OpDefinitions) -> None:
    from tensorflow.python.framework import dtypes

    types = output_types(source, definitions)
    if types is None or output >= len(types):
        raise UsageError(f"the plan swaps output {output} of {source.name}, which it does not have")
    node.Clear()
    node.op = "Identity"
    node.attr["T"].type = dtypes.as_dtype(types[output].dtype).as_datatype_enum


def mark_inputs(node: Any, inputs: Iterable[str]) -> None:
    """Keeps ``inputs`` as what ``node`` read before."""
    node.attr[INPUTS].list.s[:] = [name.encode() for name in inputs]


def inputs_before(node: Any) -> list[str]:
    """The tensors that a node read before it was rewritten; none if it was not."""
    return [name.decode() for name in node.attr[INPUTS].list.s] if INPUTS in node.attr else []


def is_added(node: Any) -> bool:
    """Whether a plan added the node."""
    return ADDED in node.attr


def is_released(node: Any) -> bool:
    """Whether a node is a join that is released: it is there and does not run."""
    return RELEASED in node.attr


def rename_marks(node: Any, inner: Callable[[str], str]) -> None:
    """Spells the names in the marks of ``node`` as the function does that it becomes a part of."""
    if INPUTS in node.attr:
        mark_inputs(node, map(inner, inputs_before(node)))
    if ADDED in node.attr:
        node.attr[ADDED].s = inner(f"^{node.attr[ADDED].s.decode()}")[1:].encode()


def adopt_rewriting(node: Any, new: Any) -> None:
    """Makes a node of the main graph read what its flat copy ``new`` reads since it was rewritten:
    of what calls give, the two have different names."""
    if is_released(new):
        node.attr[RELEASED].b = True
    before = inputs_before(new)
    if not before:
        return
    inputs = data_inputs(node.input)
    mark_inputs(node, inputs)
    for slot, (old, late) in enumerate(zip(before, data_inputs(new.input), strict=True)):
        if late != old:
            node.input[slot] = late


def remove_rewriting(graph_def: Any) -> None:
    """Makes a GraphDef and its library what they were before they were rewritten, in place."""
    remove_added_control(graph_def)  # some of it is of added ops
    for nodes in (graph_def.node, *(function.node_def for function in graph_def.library.function)):
        for number in reversed(range(len(nodes))):
            if is_added(nodes[number]):
                del nodes[number]
        for node in nodes:
            if before := inputs_before(node):
                node.input[: len(before)] = before
                del node.attr[INPUTS]
            if is_released(node):
                del node.attr[RELEASED]


def is_rewritten(graph_def: Any) -> bool:
    """Whether a plan rewrote anything of a GraphDef: every rewriting changes what some op reads."""
    return any(INPUTS in node.attr for node in all_nodes(graph_def))
