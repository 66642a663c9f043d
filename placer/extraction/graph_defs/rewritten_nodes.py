"""NodeDefs that a plan rewrote: they are marked, to be known again.

Added ops are marked, and ops that read something else than they did keep the names of that.  A join
that is released would run in a function although nothing reads it: it goes, and the first that read
it keeps it as bytes.  Extraction takes all of this back, so that a program keeps its fingerprint
when a plan is applied.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from placer.errors import UsageError
from placer.extraction.graph_defs.added_control import remove_added_control
from placer.extraction.graph_defs.op_definitions import OpDefinitions
from placer.extraction.graph_defs.protobufs import all_nodes, copied
from placer.extraction.graph_defs.tensor_types import output_types
from placer.graph.rewriting import Rewriting
from placer.graph.rewritten_graphs import Wiring, rewire
from placer.graph.tensor_names import (
    data_inputs,
    full_tensor,
    is_control,
    op_of,
    short_tensor,
    split_tensor,
)

ADDED = "_placer_rewritten_source"
"""The attribute of an op that is added, which names the op whose value it has."""

INPUTS = "_placer_rewritten_inputs"
"""The attribute of an op that reads other tensors than it did, with those that it read."""

JOINS = "_placer_rewritten_joins"
"""The attribute of an op with the joins of gradients that it read, as NodeDefs in bytes."""


def rewrite_nodes(
    nodes: Iterable[Any], rewriting: Rewriting, kept: Collection[str], definitions: OpDefinitions
) -> list[Any]:
    """The rewritten nodes, producers first; those that differ from ``nodes`` are copies.  A join
    that is released stays where it is ``kept`` or waited for.

    Raises :class:`UsageError` as :func:`placer.graph.rewritten_graphs.rewire`, and for a clone of
    an op with state.
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
    found = rewire(wirings, rewriting, kept)
    rewritten = {
        name: given[name]
        if wiring is wirings.get(name)
        else _rewritten(given, name, wiring, definitions)
        for name, wiring in found.items()
    }
    for name in rewriting.released:
        if name not in rewritten:
            reader = name
            while reader not in rewritten:  # a join of a join
                reader = next(n for n, op in wirings.items() if reader in map(op_of, op.inputs))
            rewritten[reader].attr[JOINS].list.s.append(given[name].SerializeToString())
    return list(rewritten.values())


def _rewritten(
    given: Mapping[str, Any], name: str, wiring: Wiring, definitions: OpDefinitions
) -> Any:
    source = given[wiring.source or name]
    inputs = [short_tensor(*split_tensor(tensor)) for tensor in wiring.inputs]
    node = copied(source)
    if wiring.source:
        if wiring.tensor:
            _make_identity(node, source, split_tensor(wiring.tensor)[1], definitions)
        node.name = name
        node.attr.pop("_class", None)
        node.attr[ADDED].s = wiring.source.encode()
    else:
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


def released_joins(nodes: Iterable[Any]) -> list[Any]:
    """The joins that ``nodes`` keep."""
    return [
        type(node).FromString(content)
        for node in nodes
        if JOINS in node.attr
        for content in node.attr[JOINS].list.s
    ]


def rename_marks(node: Any, inner: Callable[[str], str]) -> None:
    """Spells the names in the marks of ``node`` as the function does that it becomes a part of."""
    if INPUTS in node.attr:
        mark_inputs(node, map(inner, inputs_before(node)))
    if ADDED in node.attr:
        node.attr[ADDED].s = inner(f"^{node.attr[ADDED].s.decode()}")[1:].encode()
    if JOINS in node.attr:
        joins = released_joins([node])
        for join in joins:
            join.name = inner(f"^{join.name}")[1:]
            join.input[:] = map(inner, join.input)
        node.attr[JOINS].list.s[:] = [join.SerializeToString() for join in joins]


def adopt_rewriting(node: Any, new: Any) -> None:
    """Makes a node of the main graph read what its flat copy ``new`` reads since it was rewritten:
    of what calls give, the two have different names."""
    before = inputs_before(new)
    if not before:
        return
    if JOINS in new.attr:
        node.attr[JOINS].CopyFrom(new.attr[JOINS])
    mark_inputs(node, data_inputs(node.input))
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
        names = {node.name for node in nodes}  # of a main graph, joins are still there
        nodes.extend([join for join in released_joins(nodes) if join.name not in names])
        for node in nodes:
            node.attr.pop(JOINS, None)


def is_rewritten(graph_def: Any) -> bool:
    """Whether a plan rewrote anything of a GraphDef: every rewriting changes what some op reads."""
    return any(INPUTS in node.attr for node in all_nodes(graph_def))
