"""Variables read before a loop instead of in it.

TensorFlow keeps a ``While`` that reads a variable on the variable's device.  Several replicas, each
with such a loop (a recurrent layer), would all run there.  A loop that only reads takes the value
as well as the handle: it is read once before the loop, and sent to where the loop is.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from placer.extraction.graph_defs.fingerprint import with_fingerprint
from placer.extraction.graph_defs.flat_nodes import NO_CONTENTS
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.protobufs import (
    FunctionDef,
    NodeDef,
    dtype_number,
    functions_by_name,
    without_nodes,
)
from placer.graph.op_types import LOOPS, READ_VARIABLE
from placer.graph.tensor_names import is_control, source_of

_READERS = LOOPS | {READ_VARIABLE, "VariableShape", "ResourceGather"}
"""Op types that take a handle and do not write (a loop is looked at by itself)."""


def with_reads_before_loops(
    program: FlatProgram, is_apart: Callable[[NodeDef], bool] = lambda _: True
) -> FlatProgram:
    """``program`` with the variables that loops only read given to them as values; only to loops
    for which ``is_apart`` says so.

    A variable that a loop writes, or hands on to another function or to an op behind it that may
    write it, stays.
    """
    loops = [node for node in program.graph_def.node if node.op in LOOPS and is_apart(node)]
    if not loops:
        return program
    # the variables that loops only read
    library = functions_by_name(program.graph_def)
    held = {
        name for node in program.graph_def.node if node.op not in _READERS for name in node.input
    }
    found = {node.name: values for node in loops if (values := dict(_values(node, library, held)))}
    if not found:
        return program
    # a copy of the graph, in which loops take values and later readers the handle itself
    handles = {
        f"{node.name}:{number}": node.input[number]
        for node in program.graph_def.node
        for number in found.get(node.name, {})
    }
    graph_def = without_nodes(program.graph_def)
    origins, call_path = dict(program.origins), dict(program.call_path)
    bodies = _Bodies(library, graph_def.library)
    for node in program.graph_def.node:
        values = found.get(node.name, {})
        control = [name for name in node.input if is_control(name)]
        for number, dtype in values.items():
            name = f"{node.name}/{READ_VARIABLE}_{number}"
            before = graph_def.node.add(name=name, op=READ_VARIABLE)
            before.input.extend([node.input[number], *control])
            before.attr["dtype"].type = dtype
            origins[name], call_path[name] = ("", name), program.call_path[node.name]
        copy = graph_def.node.add()
        copy.CopyFrom(node)
        for number in values:
            copy.input[number] = f"{node.name}/{READ_VARIABLE}_{number}"
        copy.input[:] = [handles.get(name, name) for name in copy.input]
        if values:
            bodies.replace(copy, values)
    rewritten = replace(
        program,
        graph_def=graph_def,
        contents=NO_CONTENTS,
        origins=origins,
        call_path=call_path,
        stored_shapes={n: s for n, s in program.stored_shapes.items() if n not in found},
    )
    return with_fingerprint(rewritten)


def _values(
    node: Any, library: Mapping[str, FunctionDef], held: set[str]
) -> Iterator[tuple[int, int]]:
    """(input number, dtype) of the variables that a loop only reads."""
    body = library.get(node.attr["body"].func.name)
    condition = library.get(node.attr["cond"].func.name)
    resource = dtype_number("resource")
    for number, kind in enumerate(node.attr["T"].list.type):
        if kind != resource or body is None or condition is None:
            continue
        if f"{node.name}:{number}" in held or (number == 0 and node.name in held):
            continue
        argument = body.signature.input_arg[number].name
        if body.ret[body.signature.output_arg[number].name] != argument:
            continue
        dtypes = {*_read_types(body, number), *_read_types(condition, number)}
        if len(dtypes) == 1 and None not in dtypes:
            yield number, int(dtypes.pop() or 0)


def _read_types(function: Any, number: int) -> Iterator[int | None]:
    """Yields the dtype that each op reads an argument as; ``None`` if it does not read it."""
    argument = function.signature.input_arg[number].name
    for node in function.node_def:
        if argument in {source_of(name) for name in node.input}:
            yield int(node.attr["dtype"].type) if node.op == READ_VARIABLE else None


@dataclass(frozen=True, slots=True)
class _Bodies:
    """Copies of bodies that take values, each made once, in ``written``."""

    library: Mapping[str, FunctionDef]
    written: Any

    def replace(self, node: Any, values: Mapping[int, int]) -> None:
        """Lets a loop take ``values`` (dtypes by input) for handles, in place."""
        for key in ("body", "cond"):
            function = node.attr[key].func
            function.name = self.copy(self.library[function.name], values, returns=key == "body")
        for number, dtype in values.items():
            node.attr["T"].list.type[number] = dtype
            _forget_shape(node, "output_shapes", number)
        if "_read_only_resource_inputs" in node.attr:
            kept = [n for n in node.attr["_read_only_resource_inputs"].list.i if n not in values]
            node.attr["_read_only_resource_inputs"].list.i[:] = kept

    def copy(self, function: Any, values: Mapping[int, int], *, returns: bool) -> str:
        name = f"{function.signature.name}__reads_before_{'_'.join(map(str, values))}"
        if any(known.signature.name == name for known in self.written.function):
            return name
        copy = self.written.function.add()
        copy.CopyFrom(function)
        copy.signature.name = name
        renamed = {}
        for number, dtype in values.items():
            copy.signature.input_arg[number].type = dtype
            copy.arg_attr.pop(number, None)
            _forget_shape(copy, "_input_shapes", number)
            if returns:
                copy.signature.output_arg[number].type = dtype
            argument = copy.signature.input_arg[number].name
            for node in copy.node_def:
                if node.op == READ_VARIABLE and node.input[0] == argument:
                    node.op = "Identity"
                    node.attr.clear()
                    node.attr["T"].type = dtype
                    renamed[f"{node.name}:value:0"] = f"{node.name}:output:0"
        for node in copy.node_def:
            node.input[:] = [renamed.get(reference, reference) for reference in node.input]
        for key, reference in list(copy.ret.items()):
            copy.ret[key] = renamed.get(reference, reference)
        return name


def _forget_shape(owner: Any, key: str, number: int) -> None:
    """Makes one of the shapes in an attribute unknown: it was that of a handle."""
    if key in owner.attr and number < len(owner.attr[key].list.shape):
        owner.attr[key].list.shape[number].Clear()
        owner.attr[key].list.shape[number].unknown_rank = True
