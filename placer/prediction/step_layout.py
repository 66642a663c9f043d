"""What every op of a step reads and writes, in which memory, and how many readers there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cost_models.op_cost import OpCost
from placer.graph.op_graph import OpGraph
from placer.prediction.buffer_sharing import shared_input
from placer.prediction.routes import Place, Routes

Located = tuple[str, str]
"""A tensor and the device whose memory it is in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLayout:
    """One step of a graph along one order.

    ``inputs`` and ``outputs`` of every op; ``position`` in the order of the producer of every
    tensor; ``size_bytes`` of every tensor (what a list holds included, unsized ones zero).
    ``readers`` counts the input slots that read a tensor in a memory; a fetch is one reader at
    home and one on the host.  ``sent_to`` are the other memories where a tensor is read.
    """

    inputs: Mapping[str, tuple[Located, ...]]
    outputs: Mapping[str, tuple[Located, ...]]
    position: Mapping[str, int]
    size_bytes: Mapping[str, int]
    readers: Mapping[Located, int]
    sent_to: Mapping[str, tuple[str, ...]]


def lay_out_step(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    routes: Routes,
    memory_of: Mapping[Place, str],
    order: Sequence[str],
    host: str,
) -> StepLayout:
    """The layout of the step; ``memory_of`` names the device whose memory a place is in.

    What is read before it is produced (the back edge of a v1 loop) has no reader.
    """
    outputs: dict[str, tuple[Located, ...]] = {}
    position: dict[str, int] = {}
    size_bytes: dict[str, int] = {}
    home: dict[str, str] = {}
    for number, name in enumerate(order):
        cost = costs[name]
        tensors = tuple(graph.output_names[name])
        for index, tensor in enumerate(tensors):
            position[tensor] = number
            held = cost.held_bytes[index] if cost.held_bytes else 0
            size_bytes[tensor] = held or cost.output_bytes[index] or 0
            home[tensor] = memory_of[routes.home[tensor]]
        outputs[name] = tuple((tensor, home[tensor]) for tensor in tensors)
    inputs: dict[str, tuple[Located, ...]] = {}
    readers: dict[Located, int] = {}
    for number, name in enumerate(order):
        memories = (memory_of[place] for place in routes.reads[name])
        inputs[name] = tuple(zip(graph.ops[name].inputs, memories, strict=True))
        for located in inputs[name]:
            if position[located[0]] < number:
                readers[located] = readers.get(located, 0) + 1
    for tensor in dict.fromkeys(graph.fetches):
        for memory in dict.fromkeys((home[tensor], host)):
            readers[tensor, memory] = readers.get((tensor, memory), 0) + 1
    return StepLayout(
        inputs=inputs,
        outputs=outputs,
        position=position,
        size_bytes=size_bytes,
        readers=readers,
        sent_to=_sent_to(readers, home),
    )


def _sent_to(readers: Mapping[Located, int], home: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for tensor, memory in readers:
        if memory != home[tensor]:
            found[tensor] = (*found.get(tensor, ()), memory)
    return found


def find_variables(graph: OpGraph) -> dict[str, str]:
    """The op that each resource tensor comes from, however often the handle was passed on."""
    found: dict[str, str] = {}
    for op in graph.ops.values():
        for index, output in enumerate(op.info.outputs):
            if output.dtype == "resource":
                source = shared_input(op.info, index)
                handle = None if source is None else found.get(op.inputs[source])
                found[op.output_name(index)] = handle or op.name
    return found
