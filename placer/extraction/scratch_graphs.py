"""Throw-away copies of a flat graph, made only for TensorFlow's shape functions.

Devices, colocation, functions and large constants are left out; what cannot be imported is
replaced by a stub that states its output shapes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cost_models.op_info import Shape
from placer.extraction.op_definitions import OpDefinitions, attribute
from placer.extraction.tensor_states import TensorState
from placer.extraction.tensor_types import GraphTypes

LARGE_CONSTANT_ELEMENTS = 1024
"""No shape, axis or permutation has more; larger constants are left out of the copy."""

_VALID_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refinement:
    """What is known about an op beyond what TensorFlow's shape function says.

    ``outputs`` replaces the op by a stub with these output shapes, ``ensured`` adds (output number,
    shape) pairs to what the shape function says, ``output_shapes`` sets that
    attribute (control flow), ``element_shape`` and ``num_elements`` what a TensorList op is told,
    ``value`` the shape and elements of the last output.
    """

    outputs: tuple[Shape, ...] | None = None
    ensured: tuple[tuple[int, Shape], ...] = ()
    output_shapes: tuple[Shape, ...] | None = None
    element_shape: tuple[int | None, ...] | None = None
    num_elements: int | None = None
    value: tuple[Shape, tuple[int, ...]] | None = None


NOTHING = Refinement()

ELEMENT_SHAPE_INPUT: Mapping[str, int] = {
    "TensorListGetItem": 2,
    "TensorListPopBack": 1,
    "TensorListStack": 1,
    "TensorListGather": 2,
    "TensorListFromTensor": 1,
    "TensorListReserve": 0,
    "EmptyTensorList": 0,
}
"""Which input of an op says the element shape of a TensorList."""


class ScratchGraph:
    """The copy under construction; ``names`` maps renamed ops back to their real names."""

    def __init__(
        self,
        graph_def: Any,
        types: GraphTypes,
        definitions: OpDefinitions,
        inputs: Mapping[str, TensorState],
        refinements: Mapping[str, Refinement],
    ) -> None:
        from tensorflow.core.framework import graph_pb2

        self.graph_def = graph_pb2.GraphDef()
        self.graph_def.versions.CopyFrom(graph_def.versions)
        self.types = types
        self.definitions = definitions
        self.attributes: dict[str, frozenset[str]] = {}
        self.renamed = {
            node.name: f"renamed_{number}"
            for number, node in enumerate(graph_def.node)
            if not _VALID_NAME.match(node.name)
        }
        self.names = {scratch: name for name, scratch in self.renamed.items()}
        self.redirected: dict[str, str] = {}
        self.ensured: dict[str, str] = {}
        self.known_values: dict[str, tuple[Shape, tuple[int, ...]]] = {}
        for name, refinement in refinements.items():
            self._redirect(name, refinement)
        for node in graph_def.node:
            name = node.name
            told = refinements.get(name)
            self._add(node, inputs.get(name), told)
            for number, shape in told.ensured if told is not None else ():
                self._ensure_shape(name, number, shape)

    def _add(self, node: Any, state: TensorState | None, refinement: Refinement | None) -> None:
        name = self.renamed.get(node.name, node.name)
        if state is not None:
            self._add_input(name, state, self.types.outputs[node.name][0].is_ref)
        elif refinement is not None and refinement.outputs is not None:
            self._add_stub(name, node.name, refinement.outputs)
        elif not self.definitions.is_registered(node.op):
            stored = (None,) * len(self.types.outputs[node.name])
            self._add_stub(name, node.name, stored)
        elif node.op == "Const" and constant_elements(node) > LARGE_CONSTANT_ELEMENTS:
            shape = tuple(dim.size for dim in attribute(node.attr, "value").tensor.tensor_shape.dim)
            self._add_stub(name, node.name, (shape,))
        else:
            self._add_copy(name, node)
            if refinement is not None:
                self._refine(self.graph_def.node[-1], refinement)

    def _redirect(self, name: str, refinement: Refinement) -> None:
        """Lets readers of an output read what is known about it instead."""
        scratch = self.renamed.get(name, name)
        if refinement.value is not None and refinement.outputs is None:
            last = len(self.types.outputs[name]) - 1
            self.redirected[f"{name}:{last}"] = f"{scratch}/known_value"
            self.known_values[f"{name}:{last}"] = refinement.value
        for number, _ in refinement.ensured:
            self.redirected[f"{name}:{number}"] = f"{scratch}/known_shape_{number}"

    def _ensure_shape(self, name: str, number: int, shape: Shape) -> None:
        ensured = self.redirected[f"{name}:{number}"]
        self.ensured[f"{name}:{number}"] = ensured
        node = self.graph_def.node.add(name=ensured, op="EnsureShape")
        node.input.append(f"{self.renamed.get(name, name)}:{number}")
        node.attr["T"].type = dtype_number(self.types.outputs[name][number].dtype)
        fill_shape(node.attr["shape"].shape, shape)
        self.names[ensured] = name

    def _add_copy(self, name: str, node: Any) -> None:
        copy = self.graph_def.node.add()
        copy.CopyFrom(node)
        copy.name = name
        copy.device = ""
        if self.renamed or self.redirected:
            copy.input[:] = [self._scratch_reference(reference) for reference in node.input]
        op_type, attributes = node.op, copy.attr
        known = self._known_attributes(op_type)
        for key in [key for key in attributes if key not in known]:
            del attributes[key]
        if op_type in ("While", "StatelessWhile") and "output_shapes" in attributes:
            attributes["output_shapes"].list.Clear()

    def _scratch_reference(self, reference: str) -> str:
        tensor = reference if ":" in reference else f"{reference}:0"
        if tensor in self.redirected:
            return self.redirected[tensor]
        mark = "^" if reference.startswith("^") else ""
        name, colon, index = reference.lstrip("^").partition(":")
        return f"{mark}{self.renamed.get(name, name)}{colon}{index}"

    def _known_attributes(self, op_type: str) -> frozenset[str]:
        if op_type not in self.attributes:
            definition = self.definitions.find(op_type)
            attributes = definition.attr if definition is not None else ()
            self.attributes[op_type] = frozenset(attr.name for attr in attributes)
        return self.attributes[op_type]

    def _add_input(self, name: str, state: TensorState, is_ref: bool) -> None:
        if state.value is not None and state.shape is not None:
            self._add_value(name, state.value, state.shape, state.dtype)
        elif state.dtype == "resource" and state.element is not None:
            node = self.graph_def.node.add(name=name, op="VarHandleOp")
            node.attr["dtype"].type = dtype_number(state.element.dtype)
            fill_shape(node.attr["shape"].shape, state.element.shape)
        elif state.dtype == "variant" and state.element is not None:
            node = self.graph_def.node.add(name=name, op="EmptyTensorList")
            node.attr["element_dtype"].type = dtype_number(state.element.dtype)
            node.attr["shape_type"].type = dtype_number("int32")
            node.input.extend(
                [
                    self._add_shape_constant(f"{name}/element_shape", state.element.shape),
                    self._add_integer(f"{name}/max_num_elements", -1),
                ]
            )
        else:
            node = self.graph_def.node.add(name=name, op="VariableV2" if is_ref else "Placeholder")
            node.attr["dtype"].type = dtype_number(state.dtype)
            fill_shape(node.attr["shape"].shape, state.shape)

    def _add_stub(self, name: str, real_name: str, shapes: tuple[Shape, ...]) -> None:
        """An op with the same outputs; ``InfeedDequeueTuple`` can have any."""
        types = self.types.outputs[real_name]
        if len(types) == 1:
            self._add_input(name, TensorState(types[0].dtype, shapes[0]), types[0].is_ref)
        elif not types:
            self.graph_def.node.add(name=name, op="NoOp")
        else:
            node = self.graph_def.node.add(name=name, op="InfeedDequeueTuple")
            for kind, shape in zip(types, shapes, strict=True):
                node.attr["dtypes"].list.type.append(dtype_number(kind.dtype))
                fill_shape(node.attr["shapes"].list.shape.add(), shape)

    def _refine(self, node: Any, refinement: Refinement) -> None:
        if refinement.output_shapes is not None:
            node.attr["output_shapes"].list.Clear()
            for shape in refinement.output_shapes:
                fill_shape(node.attr["output_shapes"].list.shape.add(), shape)
        if refinement.num_elements is not None:
            node.attr["num_elements"].i = refinement.num_elements
        if refinement.value is not None:
            shape, value = refinement.value
            kind = self.types.outputs[self.names.get(node.name, node.name)][-1]
            self._add_value(f"{node.name}/known_value", value, shape, kind.dtype)
        if refinement.element_shape is not None:
            name = f"{node.name}/known_element_shape"
            node.input[ELEMENT_SHAPE_INPUT[node.op]] = name
            dtype = node.attr["shape_type"].type if "shape_type" in node.attr else 0
            self._add_shape_constant(name, refinement.element_shape, dtype)

    def _add_shape_constant(self, name: str, shape: Shape, dtype: int = 0) -> str:
        from tensorflow.python.framework import dtypes, tensor_util

        value = -1 if shape is None else [-1 if dim is None else dim for dim in shape]
        kind = dtypes.as_dtype(dtype or dtype_number("int32"))
        return self._add_constant(name, tensor_util.make_tensor_proto(value, dtype=kind))

    def _add_value(self, name: str, value: tuple[int, ...], shape: Shape, dtype: str) -> None:
        from tensorflow.python.framework import dtypes, tensor_util

        kind = dtypes.as_dtype(dtype)
        proto = tensor_util.make_tensor_proto(list(value), dtype=kind, shape=list(shape or ()))
        self._add_constant(name, proto)

    def _add_integer(self, name: str, value: int) -> str:
        from tensorflow.python.framework import dtypes, tensor_util

        return self._add_constant(name, tensor_util.make_tensor_proto(value, dtype=dtypes.int32))

    def _add_constant(self, name: str, proto: Any) -> str:
        node = self.graph_def.node.add(name=name, op="Const")
        node.attr["dtype"].type = proto.dtype
        node.attr["value"].tensor.CopyFrom(proto)
        return name


def dtype_number(dtype: str) -> int:
    """The DataType number of a dtype name; ``float32`` where the dtype is unknown."""
    from tensorflow.python.framework import dtypes

    return int(dtypes.as_dtype(dtype or "float32").as_datatype_enum)


def fill_shape(proto: Any, shape: Shape) -> None:
    """Writes ``shape`` into an empty TensorShapeProto."""
    proto.Clear()
    if shape is None:
        proto.unknown_rank = True
        return
    proto.SetInParent()
    for dim in shape:
        proto.dim.add(size=-1 if dim is None else dim)


def constant_elements(node: Any) -> int:
    """How many elements a ``Const`` has."""
    count = 1
    for dim in attribute(node.attr, "value").tensor.tensor_shape.dim:
        count *= dim.size
    return count
