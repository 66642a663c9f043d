"""Functional control flow runs where the plan puts it, bodies and loop state included.

TensorFlow lowers ``While``, ``If`` and ``Case`` to primitive ops when it runs them, and puts the
first of those (``Enter``, ``Switch``) on the device of each *input*, not of the op
(``core/common_runtime/lower_while_op.cc``, ``lower_if_op.cc``): a loop fed from another device
would keep its state there and send it to and fro in every iteration.  So an input from another
device is first received by an identity on the op's own device, the *input anchor*.  Extraction
looks through anchors, so the program keeps its fingerprint.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from cost_models.device_names import full_name, merge
from placer.application.devices.device_mapping import HOST
from placer.application.devices.node_kernels import has_kernel
from placer.extraction.flattening.inlining import INPUT_ANCHOR
from placer.extraction.graph_defs.conditionals import LOWERED
from placer.extraction.graph_defs.op_definitions import OpDefinitions, attribute, called_functions
from placer.extraction.graph_defs.protobufs import FunctionDef, copied, dtype_number
from placer.extraction.graph_defs.tensor_types import input_types
from placer.graph.op_types import CALLS, CONTROL_FLOW
from placer.graph.tensor_names import op_of

CLONE_MARK = "_placed_"
"""Stands in the names of bodies that were cloned for a device, before a number."""


class BodyPlacer:
    """Gives the functions that control flow runs a device, cloning one for each device.

    ``library`` holds the functions by name; ``clones`` fills with the placed ones.
    """

    def __init__(self, library: Mapping[str, FunctionDef], taken: set[str]) -> None:
        self._library = library
        self._taken = taken | set(library)
        self._known: dict[tuple[str, str], str] = {}
        self.clones: list[Any] = []

    def place(self, node: Any, device: str) -> None:
        """Points the control-flow op ``node`` to bodies that run on ``device``."""
        for _, function in called_functions(node):
            if function.name in self._library:
                function.name = self._clone(function.name, device)

    def _clone(self, name: str, device: str) -> str:
        key = name, device
        if key not in self._known:
            self._known[key] = new_name = self._free_name(name)
            clone = copied(self._library[name])
            clone.signature.name = new_name
            for node in clone.node_def:
                node.device = self._device(node, device)
                if node.op in CONTROL_FLOW | CALLS:
                    self.place(node, device)
            self.clones.append(clone)
        return self._known[key]

    @staticmethod
    def _device(node: Any, device: str) -> str:
        """``device``, the host of its task where it has no kernel there, ``""`` for calls."""
        if node.op in CALLS:
            return ""
        if node.op in CONTROL_FLOW or has_kernel(node, device):
            return device
        return full_name(merge(device, HOST))

    def _free_name(self, name: str) -> str:
        name, number = name.partition(CLONE_MARK)[0], 0
        while (candidate := f"{name}{CLONE_MARK}{number}") in self._taken:
            number += 1
        self._taken.add(candidate)
        return candidate


def input_anchors(
    node: Any, devices: Mapping[str, str], definitions: OpDefinitions
) -> Iterator[Any]:
    """The anchors that the control-flow op ``node`` needs; redirects its inputs to them.

    ``devices`` maps op names to device strings.  Ops that are not lowered need none.
    """
    from tensorflow.core.framework import node_def_pb2

    if node.op not in CONTROL_FLOW or not attribute(node.attr, LOWERED).b:
        return
    anchors: dict[str, str] = {}
    for number, kind in enumerate(input_types(node, definitions) or ()):
        tensor = node.input[number]
        producer = op_of(tensor)
        here = devices[node.name]
        if kind.dtype == "resource" or devices.get(producer, here) == here:
            continue
        if tensor not in anchors:
            anchors[tensor] = f"{node.name}/placer_input_{number}"
            anchor = node_def_pb2.NodeDef(
                name=anchors[tensor], op="Identity", input=[tensor], device=here
            )
            anchor.attr["T"].type = dtype_number(kind.dtype)
            anchor.attr[INPUT_ANCHOR].b = True
            yield anchor
        node.input[number] = anchors[tensor]
