"""GraphDefs and MetaGraphDefs in which tables are split, with the functions they are handed to."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cost_models.tensor_size import element_bytes
from placer.errors import ModelError, UsageError, near_names, some
from placer.extraction.graph_defs.protobufs import copied, dtype_name, functions_by_name, shape_of
from placer.extraction.splitting.parts import Table
from placer.extraction.splitting.split_nodes import (
    STALE,
    Parts,
    ScopeSplitter,
    called_tables,
    split_variable,
)
from placer.graph.op_types import CALLS, VARIABLES
from placer.graph.tensor_names import full_tensor, op_of

Arguments = dict[str, dict[int, Table]]
"""The tables that functions take, by function and number of the argument."""


def _largest_first(variables: Mapping[str, Any]) -> list[str]:
    """The names of variables by their numbers of elements; of copies the one named by its layer
    comes before ``Variable_1``."""

    def rank(name: str) -> tuple[int, bool, str]:
        shape = shape_of(variables[name].attr["shape"].shape) or ()
        return -math.prod(size or 1 for size in shape), "/" not in name, name

    return sorted(variables, key=rank)


def find_tables(graph_def: Any, counts: Mapping[str, int]) -> dict[str, Table]:
    """The variables of the main graph that are to be split, by their names.

    Raises :class:`UsageError` for a name that no variable has, :class:`ModelError` for one whose
    shape is unknown.
    """
    variables = {node.name: node for node in graph_def.node if node.op in VARIABLES}
    tables = {}
    for name, count in counts.items():
        if name not in variables:
            called = {op_of(text) for n in graph_def.node if n.op in CALLS for text in n.input}
            near = near_names(name, [v for v in variables if v in called] or variables)
            known = near or f"; the model has {some(_largest_first(variables)) or 'none'}"
            raise UsageError(f"there is no variable {name!r} to split{known}")
        shape = shape_of(variables[name].attr["shape"].shape)
        if shape is None or None in shape:
            raise ModelError(f"{name} cannot be split: the graph does not say its shape")
        dtype = dtype_name(variables[name].attr["dtype"].type)
        if element_bytes(dtype) is None:
            raise ModelError(f"{name} cannot be split: its elements ({dtype}) have no fixed size")
        tables[name] = Table(
            name=name, shape=tuple(size for size in shape if size is not None), count=count
        )
    return tables


def copies_of(graph_def: Any, tables: Mapping[str, Table]) -> dict[str, Table]:
    """The variables of the main graph that are assigned one of ``tables`` as a whole, and so are to
    be split as it is."""
    reads = {n.name: op_of(n.input[0]) for n in graph_def.node if n.op == "ReadVariableOp"}
    assigned = {
        op_of(node.input[0]): reads.get(op_of(node.input[1]), "")
        for node in graph_def.node
        if node.op == "AssignVariableOp"
    }
    return {
        name: replace(tables[read], name=name)
        for name, read in assigned.items()
        if read in tables and name not in tables
    }


def is_split(graph_def: Any, counts: Mapping[str, int]) -> bool:
    """Whether the main graph has the parts in place of the variables."""
    names = {node.name for node in graph_def.node if node.op in VARIABLES}
    return not names & counts.keys() and all(
        (f"{name}/part_{number}" in names) == (number < n)
        for name, n in counts.items()
        for number in (0, n - 1, n)
    )


def split_graph(
    graph_def: Any,
    tables: Mapping[str, Table],
    given: Mapping[str, Mapping[int, Table]],
    *,
    sliced: bool,
) -> dict[str, Table]:
    """Splits ``tables`` in a GraphDef, in place; what they are called in checkpoints.

    ``given`` are arguments of functions known from elsewhere; with ``sliced`` savers keep the whole
    as it was, slice by slice.  Raises :class:`ModelError` for what
    cannot be split.
    """
    library = functions_by_name(graph_def)
    arguments = _find_arguments(graph_def, library, tables, given)
    handles = {f"{name}:0": (table, table.parts(name)) for name, table in tables.items()}
    keys = ScopeSplitter(graph_def.node, handles, library, sliced=sliced).split()
    _replace_variables(graph_def.node, tables)
    for name, taken in arguments.items():
        keys.update(_split_function(library[name], taken, library, sliced=sliced))
    return keys


def _replace_variables(nodes: Any, tables: Mapping[str, Table]) -> None:
    new = []
    for node in nodes:
        new.extend(split_variable(node, tables[node.name]) if node.name in tables else [node])
        if gone := sorted(tables.keys() & {t.removeprefix("^") for t in node.input}):
            raise ModelError(f"{gone[0]} cannot be split by rows: {node.name} waits for it")
    del nodes[:]
    nodes.extend(new)


def _find_arguments(
    graph_def: Any,
    library: Mapping[str, Any],
    tables: Mapping[str, Table],
    given: Mapping[str, Mapping[int, Table]],
) -> Arguments:
    """Which arguments of which functions are tables, through all calls.

    Raises :class:`ModelError` where one call gives a function a table and another does not.
    """
    arguments: Arguments = {}
    mains = {f"{name}:0": table for name, table in tables.items()}
    queue = [*called_tables(graph_def.node, mains, library, full_tensor), *given.items()]
    for name, taken in queue:  # grows meanwhile
        known = arguments.setdefault(name, {})
        more = {number: table for number, table in taken.items() if number not in known}
        if more and name in library:
            known.update(more)
            names = [argument.name for argument in library[name].signature.input_arg]
            inner = {names[number]: table for number, table in known.items()}
            queue.extend(called_tables(library[name].node_def, inner, library, str))
    arguments = {name: taken for name, taken in arguments.items() if taken and name in library}
    _check_calls(graph_def.node, mains, arguments, library, full_tensor, "")
    for name, function in library.items():
        names = [argument.name for argument in function.signature.input_arg]
        inner = {names[number]: table for number, table in arguments.get(name, {}).items()}
        _check_calls(function.node_def, inner, arguments, library, str, name)
    return arguments


def _check_calls(
    nodes: Iterable[Any],
    tables: Mapping[str, Table],
    arguments: Arguments,
    library: Mapping[str, Any],
    tensor: Any,
    function: str,
) -> None:
    for name, taken in called_tables(nodes, tables, library, tensor):
        wanted = arguments.get(name, {})
        for number in wanted.keys() | taken.keys():
            here, there = taken.get(number), wanted.get(number)
            if here is None or there is None or here.starts != there.starts:
                table = here or there
                assert table is not None
                raise ModelError(
                    f"{table.name} cannot be split by rows: function {name} is called with it and, "
                    f"in {function or 'the main graph'}, with another variable; split both alike "
                    "or none"
                )


def _split_function(
    function: Any, taken: Mapping[int, Table], library: Mapping[str, Any], *, sliced: bool
) -> dict[str, Table]:
    """Gives a function the parts in place of the tables among its arguments, in place."""
    name = function.signature.name
    handles = _split_arguments(function, taken)
    if not function.node_def:
        return {}
    splitter = ScopeSplitter(function.node_def, handles, library, name, sliced=sliced)
    keys = splitter.split()
    for key, tensor in list(function.ret.items()):
        if tensor in splitter.found:
            table = splitter.found[tensor][0]
            raise ModelError(f"{table.name} cannot be split by rows: function {name} returns it")
        function.ret[key] = splitter.renamed.get(tensor, tensor)
    return keys


def _split_arguments(function: Any, taken: Mapping[int, Table]) -> dict[str, Parts]:
    """Writes the signature of a function anew; its tables by the arguments that they were."""
    before = copied(function)
    for field in ("arg_attr", "resource_arg_unique_id"):
        function.ClearField(field)
    arguments = function.signature.input_arg
    del arguments[:]
    handles: dict[str, Parts] = {}
    for number, argument in enumerate(before.signature.input_arg):
        table = taken.get(number)
        names = [str(argument.name)]
        if table is not None:
            names = [f"{argument.name}_part_{part}" for part in range(table.count)]
            handles[argument.name] = (table, names)
            argument.ClearField("handle_data")
        elif number in before.resource_arg_unique_id:
            kept = before.resource_arg_unique_id[number]
            function.resource_arg_unique_id[len(arguments)] = kept
        for name in names:
            if number in before.arg_attr:
                kept_attributes = function.arg_attr[len(arguments)]
                kept_attributes.CopyFrom(before.arg_attr[number])
                for key in STALE if table is not None else ():
                    kept_attributes.attr.pop(key, None)
            arguments.add().CopyFrom(argument)
            arguments[-1].name = name
    if "_input_shapes" in function.attr:  # one per argument
        shapes = function.attr["_input_shapes"].list.shape
        del shapes[:]
        for number, shape in enumerate(before.attr["_input_shapes"].list.shape):
            shapes.extend([shape] * (taken[number].count if number in taken else 1))
    return handles
