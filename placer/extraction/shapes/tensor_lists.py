"""Element shapes and lengths of TensorLists, and of optionals, followed from writer to reader.

TensorFlow's shape functions believe the element shape that was traced into the graph
(``[-1, 128]``); here it is taken from what is really written.  An optional, in which a branch hands
a value to its gradient, holds one element or none.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from cost_models.op_info import Shape
from placer.extraction.graph_defs.op_definitions import attribute
from placer.extraction.graph_defs.protobufs import dtype_name
from placer.extraction.graph_defs.scratch_graphs import Refinement
from placer.extraction.graph_defs.tensor_states import (
    ElementState,
    TensorState,
    join_elements,
    sharpen_shape,
)
from placer.extraction.graph_defs.tensor_types import GraphTypes
from placer.extraction.shapes.imported_shapes import ImportedGraph
from placer.graph.op_types import (
    ENTERS,
    EXITS,
    LIST_ITEM_INPUT,
    LIST_SHAPE_INPUT,
    MERGES,
    NEXT_ITERATIONS,
    SWITCHES,
)
from placer.graph.tensor_names import data_inputs, full_tensor

PASSING_TYPES = frozenset(
    {"Identity", "StopGradient", "ZerosLike", "AddN", *LIST_ITEM_INPUT, "TensorListPopBack"}
    | {"TensorListResize", "TensorListScatterIntoExistingList"}
    | (ENTERS | EXITS | SWITCHES | MERGES | NEXT_ITERATIONS)
)
READING_TYPES = frozenset(
    {"TensorListGetItem", "TensorListPopBack", "TensorListStack", "TensorListGather"}
    | {"OptionalGetValue"}
)


class ListFlow:
    """The contents of every TensorList of one graph, filled in graph order.

    ``lists`` maps tensor names to contents; control flow adds the contents of its outputs.
    """

    def __init__(
        self, imported: ImportedGraph, types: GraphTypes, inputs: Mapping[str, TensorState]
    ) -> None:
        self.imported = imported
        self.types = types
        self.lists: dict[str, ElementState] = {
            f"{name}:0": state.element
            for name, state in inputs.items()
            if state.element is not None and state.dtype == "variant"
        }

    def visit(self, node: Any) -> None:
        """Notes what the list outputs of an op hold."""
        if node.op in PASSING_TYPES and self.types.of(node.name).dtype == "variant":
            held = self.lists.get(self._data(node, 0))
            written = self._written(node)
            if held is not None and written is not None:
                length = None if node.op == "TensorListPushBack" else held.length
                held = join_elements(held, replace(written, length=held.length))
                held = replace(held, length=length) if held else None
            if held is not None:
                for index in range(len(self.types.outputs[node.name])):
                    self.lists[f"{node.name}:{index}"] = held
        elif node.op in _CREATORS:
            self.lists[f"{node.name}:0"] = _CREATORS[node.op](self, node)

    def refinement(self, node: Any) -> Refinement | None:
        """Returns the facts about a list that its reader or creator does not state itself."""
        if node.op == "OptionalGetValue":
            return self._value_of_optional(node)
        if node.op == "TensorListFromTensor":
            held = self.lists[f"{node.name}:0"]
        elif node.op in READING_TYPES and self._data(node, 0) in self.lists:
            held = self.lists[self._data(node, 0)]
        else:
            return None
        stated = self._shape_value(node, LIST_SHAPE_INPUT[node.op])
        shape = sharpen_shape(stated, held.shape)
        states_length = "num_elements" in node.attr and node.attr["num_elements"].i >= 0
        length = held.length if node.op == "TensorListStack" and not states_length else None
        value = None
        if node.op == "TensorListPopBack" and held.value is not None:
            value = held.shape, held.value
        if shape == stated and length is None and value is None:
            return None
        return Refinement(element_shape=shape, num_elements=length, value=value)

    def _value_of_optional(self, node: Any) -> Refinement | None:
        """The shape of the only value in an optional."""
        held = self.lists.get(self._data(node, 0))
        known = self.imported.shapes[node.name]
        if held is None or len(known) != 1:
            return None
        shape = sharpen_shape(known[0], held.shape)
        return None if shape == known[0] else Refinement(output_shapes=(shape,))

    def _written(self, node: Any) -> ElementState | None:
        number = LIST_ITEM_INPUT.get(node.op)
        if number is None:
            return None
        item = self._data(node, number)
        value = self.imported.value(item) if node.op == "TensorListPushBack" else None
        return ElementState(
            self.types.of(item).dtype, self.imported.shape(item), value=value, written=True
        )

    def _data(self, node: Any, number: int) -> str:
        data = data_inputs(node.input)
        return full_tensor(data[number]) if number < len(data) else ""

    def _shape_value(self, node: Any, number: int) -> Shape:
        """The shape that an input tensor states; unknown where it holds -1."""
        tensor = self._data(node, number)
        value = self.imported.values.get(tensor)
        if value is None or self.imported.shape(tensor) == ():
            return None
        return tuple(None if dim < 0 else dim for dim in value)

    def _from_tensor(self, node: Any) -> ElementState:
        tensor = self._data(node, 0)
        shape = self.imported.shape(tensor)
        stated = self._shape_value(node, 1)
        dtype = self.types.of(tensor).dtype
        if not shape:
            return ElementState(dtype, stated)
        return ElementState(dtype, sharpen_shape(shape[1:], stated), shape[0])

    def _reserved(self, node: Any) -> ElementState:
        count = self.imported.values.get(self._data(node, 1))
        shape = self._shape_value(node, 0)
        return ElementState(_element_dtype(node), shape, count[0] if count else None)

    def _optional(self, node: Any) -> ElementState:
        """Returns what an optional of one value holds; of several, or none, nothing is known."""
        if len(data_inputs(node.input)) != 1:
            return ElementState("", None)
        tensor = self._data(node, 0)
        return ElementState(self.types.of(tensor).dtype, self.imported.shape(tensor))

    def _empty(self, node: Any) -> ElementState:
        return ElementState(_element_dtype(node), self._shape_value(node, 0))


_CREATORS: Mapping[str, Callable[[ListFlow, Any], ElementState]] = {
    "TensorListFromTensor": ListFlow._from_tensor,
    "TensorListReserve": ListFlow._reserved,
    "EmptyTensorList": ListFlow._empty,
    "OptionalFromValue": ListFlow._optional,
    "OptionalNone": ListFlow._optional,
}

LIST_TYPES = PASSING_TYPES | READING_TYPES | _CREATORS.keys()
"""The op types that make, hand on or read lists."""


def _element_dtype(node: Any) -> str:
    return dtype_name(attribute(node.attr, "element_dtype").type)
