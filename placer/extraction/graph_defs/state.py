"""Variables and tables of a flat graph."""

from dataclasses import replace
from typing import Any

from placer.extraction.graph_defs.op_definitions import attribute, decoded
from placer.extraction.graph_defs.program import RawProgram
from placer.extraction.graph_defs.protobufs import Captures, dtype_name, shape_of
from placer.graph.name_scopes import free_name
from placer.graph.op_graph import Variable
from placer.graph.op_types import ANONYMOUS, TABLES, VARIABLES

_KEPT = VARIABLES | TABLES


def resource_key(node: Any) -> tuple[str, str, str]:
    """Returns the key in which two handle ops of the same resource agree."""
    kind = "table" if node.op in TABLES else "variable"
    container = decoded(attribute(node.attr, "container").s)
    return kind, container, shared_name(node) or f"//{node.name}"


def shared_name(node: Any) -> str:
    """The name under which other handle ops reach the same resource, ``""`` if there is none."""
    name = decoded(attribute(node.attr, "shared_name").s)
    return "" if name == ANONYMOUS else str(name)


def find_variables(graph_def: Any, raw: RawProgram, captures: Captures) -> tuple[Variable, ...]:
    """The variables and tables of a flat graph, each once, with unique names.

    Handle ops with one shared name are one variable; it is named by that, else by its op.
    ``captures`` maps flat placeholders to live handles.
    """
    first: dict[tuple[str, str, str], Any] = {}
    for node in graph_def.node:
        if node.op in _KEPT:
            first.setdefault(resource_key(node), node)
    found = [_declared(node, raw) for node in first.values()]
    for name, value in captures.items():
        if value.dtype.name == "resource":
            found.append(_captured(name, value, raw))
    taken: set[str] = set()
    for number, variable in enumerate(found):
        name = free_name(variable.name, taken)
        taken.add(name)
        found[number] = replace(variable, name=name)
    return tuple(found)


def _declared(node: Any, raw: RawProgram) -> Variable:
    name = shared_name(node) or node.name
    if node.op in TABLES:
        return Variable(name=name, handle=node.name, dtype="resource", shape=None)
    shape = shape_of(attribute(node.attr, "shape").shape)
    if shape is None or None in shape:
        shape = raw.declared_shapes.get(name, shape)
    return Variable(
        name=name,
        handle=node.name,
        dtype=dtype_name(attribute(node.attr, "dtype").type),
        shape=shape,
    )


def _captured(placeholder: str, value: Any, raw: RawProgram) -> Variable:
    from tensorflow.python.ops import handle_data_util

    name = raw.variable_names.get(id(value), placeholder)
    data = handle_data_util.get_handle_data(value)
    if data is None or not data.is_set or not data.shape_and_type:
        return Variable(name=name, handle=placeholder, dtype="resource", shape=None)
    entry = data.shape_and_type[0]
    return Variable(
        name=name,
        handle=placeholder,
        dtype=dtype_name(entry.dtype),
        shape=shape_of(entry.shape),
    )
