"""Throw-away copies of a flat graph, made only for TensorFlow's shape functions.

Devices, colocation, functions and large constants are left out; what cannot be imported is
replaced by a stub that states its output shapes.  TensorFlow computes constants while it infers
shapes: what may not run has no kernel (:mod:`placer.extraction.graph_defs.pure_ops`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cost_models.op_info import Shape
from placer.extraction.graph_defs.flat_nodes import ByContent
from placer.extraction.graph_defs.op_definitions import attribute
from placer.extraction.graph_defs.protobufs import dtype_number, fill_constant, fill_shape
from placer.extraction.graph_defs.pure_ops import may_run, withhold_kernel
from placer.extraction.graph_defs.tensor_states import TensorState
from placer.extraction.graph_defs.tensor_types import GraphTypes, TensorType
from placer.graph.op_types import LIST_SHAPE_INPUT, LOOPS
from placer.graph.tensor_names import data_inputs, full_tensor, renamed

LARGE_CONSTANT_ELEMENTS = 1024
"""No shape, axis or permutation has more; larger constants are left out of the copy."""

_VALID_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refinement:
    """Facts about an op that TensorFlow's shape function does not give.

    ``outputs`` replaces the op by a stub with these output shapes, ``ensured`` adds (output number,
    shape) pairs to what the shape function says, ``output_shapes`` sets that
    attribute (control flow), ``element_shape`` and ``num_elements`` those of a TensorList op,
    ``value`` the shape and elements of the last output, or of those whose numbers are ``valued``,
    ``values`` (output number, shape, elements) of others.
    """

    outputs: tuple[Shape, ...] | None = None
    ensured: tuple[tuple[int, Shape], ...] = ()
    output_shapes: tuple[Shape, ...] | None = None
    element_shape: tuple[int | None, ...] | None = None
    num_elements: int | None = None
    value: tuple[Shape, tuple[int, ...]] | None = None
    valued: tuple[int, ...] = (-1,)
    values: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...] = ()


NOTHING = Refinement()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """The changes that a node needs before it is imported.

    Whether a stub takes its place (with these ``outputs``, unknown ones if there are none), else
    which attributes go, whether the shapes that it states do, and whether it has no kernel.
    """

    is_stub: bool = False
    outputs: tuple[Shape, ...] = ()
    dropped: tuple[str, ...] = ()
    forgets_shapes: bool = False
    cannot_run: bool = False


_NO_CHANGE = _Change()


class ScratchGraph:
    """The copy under construction; ``names`` maps renamed ops back to their real names."""

    def __init__(
        self,
        graph_def: Any,
        types: GraphTypes,
        inputs: Mapping[str, TensorState],
        refinements: Mapping[str, Refinement],
    ) -> None:
        from tensorflow.core.framework import graph_pb2

        self.graph_def = graph_pb2.GraphDef(versions=graph_def.versions)
        self.types = types
        # names that TensorFlow does not take, and outputs of which more is known
        self.renamed = {
            name: f"renamed_{number}"
            for number, (name, _) in enumerate(types.contents.named(graph_def.node))
            if not _VALID_NAME.match(name)
        }
        self.names = {scratch: name for name, scratch in self.renamed.items()}
        self.redirected: dict[str, str] = {}
        self.ensured: dict[str, str] = {}
        self.known_values: dict[str, tuple[Shape, tuple[int, ...]]] = {}
        for name, refinement in refinements.items():
            self._redirect(name, refinement)
        long_lists = _long_shape_lists(types, refinements)
        self._redirect_shapes(long_lists)
        # most nodes are copied at once; those to change are changed in place, stubs come last
        copied: list[Any] = []
        changed: list[tuple[int, str, _Change]] = []
        stubs: list[tuple[str, _Change]] = []
        changes = ByContent(self._find_change)
        has_new_names = bool(self.renamed or self.redirected)
        for name, node in types.contents.named(graph_def.node):
            change = changes.of(node, types.contents.get(name))
            if change.is_stub:
                stubs.append((name, change))
                continue
            if change is not _NO_CHANGE or name in inputs or name in refinements or has_new_names:
                changed.append((len(copied), name, change))
            copied.append(node)
        nodes = self.graph_def.node
        nodes.extend(copied)
        for index, name, change in changed:
            self._replace(nodes[index], name, inputs.get(name), refinements.get(name), change)
        for name, change in stubs:
            self._replace(nodes.add(), name, inputs.get(name), refinements.get(name), change)
        for name, refinement in refinements.items():
            for number, shape in refinement.ensured:
                self._ensure_shape(name, number, shape)
        self._add_shapes(long_lists)

    def _find_change(self, node: Any) -> _Change:
        op_type, definitions = node.op, self.types.definitions
        definition = definitions.find(op_type)
        if definition is None or not definitions.is_registered(op_type):
            return _Change(is_stub=True)
        if op_type == "Const" and constant_elements(node) > LARGE_CONSTANT_ELEMENTS:
            tensor = attribute(node.attr, "value").tensor
            shape = tuple(dim.size for dim in tensor.tensor_shape.dim)
            return _Change(is_stub=True, outputs=(shape,))
        known = {attr.name for attr in definition.attr}
        dropped = tuple(key for key in node.attr if key not in known)
        in_loop = op_type in LOOPS and "output_shapes" in node.attr
        cannot_run = not may_run(op_type, definitions)
        if not dropped and not in_loop and not cannot_run and not node.device:
            return _NO_CHANGE
        return _Change(dropped=dropped, forgets_shapes=in_loop, cannot_run=cannot_run)

    def _replace(
        self,
        node: Any,
        real_name: str,
        state: TensorState | None,
        refinement: Refinement | None,
        change: _Change,
    ) -> None:
        name = self.renamed.get(real_name, real_name)
        types = self.types.outputs[real_name]
        if state is not None and len(types) > 1:  # which of its outputs is fed is not known here
            self._fill_stub(node, name, types, (None,) * len(types))
        elif state is not None:
            self._fill_input(node, name, state, types[0].is_ref)
        elif refinement is not None and refinement.outputs is not None:
            self._fill_stub(node, name, types, refinement.outputs)
        elif change.is_stub:
            self._fill_stub(node, name, types, change.outputs or (None,) * len(types))
        else:
            self._adapt(node, name, change)
            if refinement is not None:
                self._refine(node, refinement)

    def _redirect(self, name: str, refinement: Refinement) -> None:
        """Lets readers of an output read what is known about it instead."""
        scratch = self.renamed.get(name, name)
        if refinement.value is not None and refinement.outputs is None:
            count = len(self.types.outputs[name])
            for number in refinement.valued:
                self.redirected[f"{name}:{number % count}"] = f"{scratch}/known_value"
                self.known_values[f"{name}:{number % count}"] = refinement.value
        for number, shape, elements in refinement.values if refinement.outputs is None else ():
            self.redirected[f"{name}:{number}"] = f"{scratch}/known_value_{number}"
            self.known_values[f"{name}:{number}"] = shape, elements
        for number, _ in refinement.ensured:
            self.redirected[f"{name}:{number}"] = f"{scratch}/known_shape_{number}"

    def _redirect_shapes(self, long_lists: list[Any]) -> None:
        """Lets readers of a ``ShapeN`` read a ``Shape`` each.

        TensorFlow's shape inference takes the value of a ``Shape`` from the shape of its input,
        that of a ``ShapeN`` only where the input is a constant.
        """
        for node in long_lists:
            scratch = self.renamed.get(node.name, node.name)
            for number, _ in enumerate(data_inputs(node.input)):
                self.redirected.setdefault(f"{node.name}:{number}", f"{scratch}/shape_{number}")

    def _add_shapes(self, long_lists: list[Any]) -> None:
        for node in long_lists:
            scratch = self.renamed.get(node.name, node.name)
            for number, reference in enumerate(data_inputs(node.input)):
                shape = self.graph_def.node.add(name=f"{scratch}/shape_{number}", op="Shape")
                shape.input.append(self._scratch_reference(reference))
                for key in ("T", "out_type"):
                    if key in node.attr:
                        shape.attr[key].CopyFrom(node.attr[key])
                self.names[shape.name] = node.name

    def _ensure_shape(self, name: str, number: int, shape: Shape) -> None:
        ensured = self.redirected[f"{name}:{number}"]
        self.ensured[f"{name}:{number}"] = ensured
        node = self.graph_def.node.add(name=ensured, op="EnsureShape")
        node.input.append(f"{self.renamed.get(name, name)}:{number}")
        node.attr["T"].type = dtype_number(self.types.outputs[name][number].dtype)
        fill_shape(node.attr["shape"].shape, shape)
        self.names[ensured] = name

    def _adapt(self, node: Any, name: str, change: _Change) -> None:
        node.name = name
        node.device = ""
        if self.renamed or self.redirected:
            node.input[:] = [self._scratch_reference(reference) for reference in node.input]
        for key in change.dropped:
            del node.attr[key]
        if change.cannot_run:
            withhold_kernel(node)
        if change.forgets_shapes:
            node.attr["output_shapes"].list.Clear()

    def _scratch_reference(self, reference: str) -> str:
        redirected = self.redirected.get(full_tensor(reference))
        return renamed(reference, self.renamed) if redirected is None else redirected

    def _fill_input(self, node: Any, name: str, state: TensorState, is_ref: bool) -> None:
        node.Clear()
        node.name = name
        if state.value is not None and state.shape is not None:
            fill_constant(node, list(state.value), state.dtype, list(state.shape))
        elif state.dtype == "resource" and state.element is not None:
            node.op = "VarHandleOp"
            node.attr["dtype"].type = dtype_number(state.element.dtype)
            fill_shape(node.attr["shape"].shape, state.element.shape)
        elif state.dtype == "variant" and state.element is not None:
            node.op = "EmptyTensorList"
            node.attr["element_dtype"].type = dtype_number(state.element.dtype)
            node.attr["shape_type"].type = dtype_number("int32")
            element = _shape_value(state.element.shape)
            node.input.append(self._add_constant(f"{name}/element_shape", element))
            node.input.append(self._add_constant(f"{name}/max_num_elements", -1))
        else:
            node.op = "VariableV2" if is_ref else "Placeholder"
            node.attr["dtype"].type = dtype_number(state.dtype)
            fill_shape(node.attr["shape"].shape, state.shape)

    def _fill_stub(
        self, node: Any, name: str, types: tuple[TensorType, ...], shapes: tuple[Shape, ...]
    ) -> None:
        """Makes ``node`` an op with these outputs; ``InfeedDequeueTuple`` can have any."""
        if len(types) == 1:
            state = TensorState(types[0].dtype, shapes[0])
            self._fill_input(node, name, state, types[0].is_ref)
            return
        node.Clear()
        node.name, node.op = name, "InfeedDequeueTuple" if types else "NoOp"
        if types:
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
            kind = self.types.outputs[self.names.get(node.name, node.name)][refinement.valued[0]]
            name = f"{node.name}/known_value"
            self._add_constant(name, list(value), kind.dtype, list(shape or ()))
        for number, shape, elements in refinement.values:
            kind = self.types.outputs[self.names.get(node.name, node.name)][number]
            name = f"{node.name}/known_value_{number}"
            self._add_constant(name, list(elements), kind.dtype, list(shape))
        if refinement.element_shape is not None:
            name = f"{node.name}/known_element_shape"
            node.input[LIST_SHAPE_INPUT[node.op]] = name
            dtype = node.attr["shape_type"].type if "shape_type" in node.attr else "int32"
            self._add_constant(name, _shape_value(refinement.element_shape), dtype)

    def _add_constant(
        self, name: str, value: Any, dtype: str | int = "int32", shape: Any = None
    ) -> str:
        fill_constant(self.graph_def.node.add(name=name), value, dtype, shape)
        return name


def _long_shape_lists(types: GraphTypes, refinements: Mapping[str, Refinement]) -> list[Any]:
    return [
        node
        for node in types.nodes_of({"ShapeN"})
        # the gradient of a longer one takes the sizes of its inputs from a packed ``ShapeN``
        if len(node.input) > 16 and refinements.get(node.name, NOTHING).outputs is None
    ]


def _shape_value(shape: Shape) -> int | list[int]:
    """A shape as a tensor holds it: -1 for what is unknown."""
    return -1 if shape is None else [-1 if dim is None else dim for dim in shape]


def constant_elements(node: Any) -> int:
    """How many elements a ``Const`` has."""
    count = 1
    for dim in attribute(node.attr, "value").tensor.tensor_shape.dim:
        count *= dim.size
    return count
