"""Which inputs are parts of a ragged or sparse tensor.

TensorFlow feeds such a tensor part by part.  Its spec says which parts: that of a live function, or
the one that a SavedModel keeps for the function that a signature calls.  A graph alone tells by the
names that ``tf.compat.v1.sparse_placeholder`` and ``tf.compat.v1.ragged.placeholder`` give, and by
ops that take all the parts; what neither tells is taken for a dense tensor.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from cost_models.op_info import Shape
from placer.extraction.graph_defs.op_definitions import argument_length, attribute, called_function
from placer.extraction.graph_defs.program import CompositePart, ProgramInput
from placer.extraction.graph_defs.protobufs import dtype_name, functions_by_name
from placer.graph.tensor_names import data_inputs, op_of

SPARSE_ROLES = ("indices", "values", "dense_shape")
"""In the order of a ``SparseTensorSpec``'s components."""

_PLACEHOLDER_PARTS = {
    "indices": "indices",
    "values": "values",
    "shape": "dense_shape",
    "flat_values": "flat_values",
}
"""How version 1's placeholders call the parts, behind the name and a slash."""

_SPLITS = "row_splits_"

_RAGGED_ARGUMENTS = {
    "RaggedGather": ("params_nested_splits", "params_dense_values"),
    "RaggedTensorToSparse": ("rt_nested_splits", "rt_dense_values"),
    "RaggedTensorToTensor": ("row_partition_tensors", "values"),
    "RaggedTensorToVariant": ("rt_nested_splits", "rt_dense_values"),
}
"""The arguments that are row splits and flat values, by op type."""

_SPARSE_ARGUMENTS = {
    "SparseFillEmptyRows": ("indices", "values", "dense_shape"),
    "SparseReorder": ("input_indices", "input_values", "input_shape"),
    "SparseReduceMax": ("input_indices", "input_values", "input_shape"),
    "SparseReduceSum": ("input_indices", "input_values", "input_shape"),
    "SparseSlice": ("indices", "values", "shape"),
    "SparseSoftmax": ("sp_indices", "sp_values", "sp_shape"),
    "SparseTensorDenseAdd": ("a_indices", "a_values", "a_shape"),
    "SparseTensorDenseMatMul": ("a_indices", "a_values", "a_shape"),
    "SparseDenseCwiseMul": ("sp_indices", "sp_values", "sp_shape"),
}
"""The arguments that are the parts of a sparse tensor, as in ``SPARSE_ROLES``."""


@dataclass(frozen=True, slots=True)
class _Component:
    """One tensor of a spec: of which argument, its number there, and as what."""

    argument: int
    number: int
    dtype: str
    role: str
    level: int
    shape: Shape


def label_by_specs(
    inputs: Sequence[ProgramInput], specs: Sequence[Any], names: Sequence[str | None] = ()
) -> tuple[ProgramInput, ...]:
    """``inputs`` with the parts that they are of ``specs``, which stand in the same order; as they
    are where the two do not fit together.

    Ragged and sparse specs have no names: those in ``names``, if there are any, become the keys.
    """
    components = dict(enumerate(_components(specs)))
    if [item.dtype for item in inputs] != [part.dtype for part in components.values()]:
        return tuple(inputs)
    named = [
        replace(item, key=f"{names[part.argument]}_{part.number}".removesuffix("_0"))
        if part.role and len(names) == len(specs) and names[part.argument]
        else item
        for item, part in zip(inputs, components.values(), strict=True)
    ]
    return _labelled(named, components)


def composite_part(whole: str, number: int, type_spec: Any) -> CompositePart | None:
    """Returns component ``number`` of a signature's composite tensor, by its TypeSpecProto."""
    from tensorflow.core.protobuf import struct_pb2
    from tensorflow.python.saved_model import nested_structure_coder

    try:
        value = struct_pb2.StructuredValue(type_spec_value=type_spec)
        parts = list(_components([nested_structure_coder.decode_proto(value)]))
    except Exception:  # as for the specs of saved functions
        return None
    return _part(whole, parts[number]) if number < len(parts) and parts[number].role else None


def label_saved_inputs(inputs: Sequence[ProgramInput], meta_graph: Any) -> tuple[ProgramInput, ...]:
    """``inputs`` of a SavedModel's signature with the parts that they are for the functions which
    the main graph calls with them.

    A signature of TensorFlow 2 knows but the parts; the function that it wraps is saved with the
    specs of its arguments.
    """
    if not meta_graph.object_graph_def.concrete_functions:
        return tuple(inputs)
    library = functions_by_name(meta_graph.graph_def)
    fed = {item.op: number for number, item in enumerate(inputs) if item.part is None}
    found: dict[int, _Component] = {}
    for node in meta_graph.graph_def.node:
        arguments = [(n, fed.get(op_of(name))) for n, name in enumerate(data_inputs(node.input))]
        if any(number is not None for _, number in arguments):
            known = _argument_parts(meta_graph, library, called_function(node), ())
            found |= {k: known[n] for n, k in arguments if k is not None and n in known}
    return _labelled(inputs, found)


def label_by_graph(
    inputs: Sequence[ProgramInput], nodes: Sequence[Any]
) -> tuple[ProgramInput, ...]:
    """``inputs`` with the parts that their names, or the ops that read them, say for certain."""
    found = {item.op: item.part for item in inputs if item.part}
    found = {**_parts_by_reader(inputs, nodes), **_parts_by_name(inputs, nodes), **found}
    return tuple(replace(item, part=found.get(item.op)) for item in inputs)


def _labelled(
    inputs: Sequence[ProgramInput], found: Mapping[int, _Component]
) -> tuple[ProgramInput, ...]:
    """``inputs`` with their parts by number; a whole is called after its first part."""
    names: dict[int, str] = {}
    for number, part in sorted(found.items()):
        names.setdefault(part.argument, inputs[number].key)
    return tuple(
        item
        if number not in found or not found[number].role
        else replace(item, part=_part(names[found[number].argument], found[number]))
        for number, item in enumerate(inputs)
    )


def _part(name: str, found: _Component) -> CompositePart:
    return CompositePart(of=name, role=found.role, level=found.level, shape=found.shape)


def _components(specs: Sequence[Any]) -> Iterator[_Component]:
    """The tensors that a function with arguments like ``specs`` takes, in order."""
    from tensorflow.python.framework import sparse_tensor
    from tensorflow.python.ops.ragged import ragged_tensor
    from tensorflow.python.util import nest

    for argument, spec in enumerate(specs):
        tensors = nest.flatten(spec, expand_composites=True)
        roles = [("", 0)] * len(tensors)
        if isinstance(spec, sparse_tensor.SparseTensorSpec):
            roles = [(role, 0) for role in SPARSE_ROLES]
        elif isinstance(spec, ragged_tensor.RaggedTensorSpec) and len(tensors) > 1:
            roles = [("flat_values", 0), *(("row_splits", n) for n in range(len(tensors) - 1))]
        for number, (tensor, (role, level)) in enumerate(zip(tensors, roles, strict=True)):
            if not hasattr(tensor, "dtype"):  # a number or a name: no tensor is passed for it
                continue
            rank = spec.shape.rank
            shape = None if rank is None or not role else tuple(spec.shape.as_list())
            dtype = dtype_name(tensor.dtype.as_datatype_enum)
            yield _Component(argument, number, dtype, role, level, shape)


def _argument_parts(
    meta_graph: Any, library: Mapping[str, Any], name: str, above: tuple[str, ...]
) -> dict[int, _Component]:
    """Returns the composite tensors that arguments of a function are parts of, by number: as it was
    saved, else as the functions say that it hands them to."""
    from tensorflow.python.saved_model import nested_structure_coder
    from tensorflow.python.util import nest

    saved = meta_graph.object_graph_def.concrete_functions
    if name in saved:
        try:
            structure = nested_structure_coder.decode_proto(
                saved[name].canonicalized_input_signature
            )
            found = dict(enumerate(_components(nest.flatten(structure))))
        except Exception:  # a damaged file, or a type that is not here: nothing is known
            found = {}
        if any(part.role for part in found.values()):
            return found
    if name not in library or name in above:
        return {}
    numbers = {item.name: n for n, item in enumerate(library[name].signature.input_arg)}
    handed: dict[int, _Component] = {}
    for node in library[name].node_def:
        inner = [(n, numbers.get(text)) for n, text in enumerate(data_inputs(node.input))]
        if called_function(node) in library and any(k is not None for _, k in inner):
            known = _argument_parts(meta_graph, library, called_function(node), (*above, name))
            handed |= {k: known[n] for n, k in inner if k is not None and n in known}
    return handed


def _parts_by_name(
    inputs: Sequence[ProgramInput], nodes: Sequence[Any]
) -> dict[str, CompositePart]:
    """The parts of version 1's placeholders, by op, where all parts of the whole are there."""
    wholes: dict[str, dict[str, CompositePart]] = {}
    for item in inputs:
        whole, _, last = item.op.rpartition("/")
        if last.startswith(_SPLITS) and last.removeprefix(_SPLITS).isdecimal():
            level = int(last.removeprefix(_SPLITS))
            part = CompositePart(of=whole, role="row_splits", level=level)
        elif last in _PLACEHOLDER_PARTS:
            part = CompositePart(of=whole, role=_PLACEHOLDER_PARTS[last])
        else:
            continue
        if _looks_like(item, part.role):
            wholes.setdefault(whole, {})[item.op] = part
    shapes = _default_shapes({f"{whole}/shape" for whole in wholes}, nodes)
    return {
        op: replace(part, shape=shapes.get(f"{whole}/shape"))
        for whole, parts in wholes.items()
        if {found.role for found in parts.values()}
        in ({"flat_values", "row_splits"}, {"indices", "values"}, set(SPARSE_ROLES))
        for op, part in parts.items()
    }


def _default_shapes(names: set[str], nodes: Sequence[Any]) -> dict[str, Shape]:
    """The shapes of version 1's sparse placeholders, by the op that holds one: its default."""
    from tensorflow.python.framework import tensor_util

    if not names:
        return {}
    readers = {
        op_of(node.input[0]): node.name
        for node in nodes
        if node.name in names and node.op == "PlaceholderWithDefault" and node.input
    }
    found: dict[str, Shape] = {}
    for node in nodes:
        if node.name in readers and node.op == "Const":
            sizes = tensor_util.MakeNdarray(attribute(node.attr, "value").tensor).ravel()
            found[readers[node.name]] = tuple(int(n) if n >= 0 else None for n in sizes)
    return found


def _looks_like(item: ProgramInput, role: str) -> bool:
    """Whether dtype and rank of an input are those that TensorFlow gives the part."""
    rank = {"indices": 2, "values": 1, "row_splits": 1, "dense_shape": 1}.get(role)
    fits = rank is None or (item.shape is not None and len(item.shape) == rank)
    return fits and (role.endswith("values") or item.dtype in ("int64", "int32"))


def _parts_by_reader(
    inputs: Sequence[ProgramInput], nodes: Sequence[Any]
) -> dict[str, CompositePart]:
    """Returns the parts by op, for inputs that one op takes as the parts of one tensor."""
    keys = {item.op: item.key for item in inputs}
    found: dict[str, CompositePart] = {}
    for node in nodes:
        op_type = node.op
        if op_type not in _RAGGED_ARGUMENTS and op_type not in _SPARSE_ARGUMENTS:
            continue
        partitions = set(attribute(node.attr, "row_partition_types").list.s)
        if op_type == "RaggedTensorToTensor" and partitions != {b"ROW_SPLITS"}:
            continue  # numbers of rows
        read = {name: list(map(op_of, texts)) for name, texts in _arguments(node).items()}
        if op_type in _SPARSE_ARGUMENTS:
            ops = [op for name in _SPARSE_ARGUMENTS[op_type] for op in read[name]]
            roles = [(role, 0) for role in SPARSE_ROLES]
        else:
            splits, values = (read[name] for name in _RAGGED_ARGUMENTS[op_type])
            ops = [*values, *splits]
            roles = [("flat_values", 0), *(("row_splits", n) for n in range(len(splits)))]
        if all(op in keys for op in ops[:2]) and len(ops) == len(roles):
            for op, (role, level) in zip(ops, roles, strict=True):
                if op in keys:
                    found[op] = CompositePart(of=keys[ops[0]], role=role, level=level)
    return found


def _arguments(node: Any) -> dict[str, list[str]]:
    """The tensors that a node of a registered op reads, by the name of the argument."""
    from tensorflow.python.framework import op_def_registry

    tensors = iter(data_inputs(node.input))
    found: dict[str, list[str]] = {}
    for argument in op_def_registry.get(node.op).input_arg:
        found[argument.name] = list(islice(tensors, argument_length(argument, node.attr)))
    return found
