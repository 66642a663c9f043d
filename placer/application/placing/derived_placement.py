"""The placement of a program that is near a planned one: evaluation beside training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placer.application.devices.device_mapping import HOST
from placer.application.devices.node_kernels import has_kernel
from placer.application.placing.shared_variables import touched_handles
from placer.extraction.graph_defs.program import FlatProgram
from placer.graph.tensor_names import source_of


def derive_placement(
    program: FlatProgram, planned: Mapping[str, str], held: Mapping[str, str]
) -> dict[str, str]:
    """A device for every op of ``program``, out of the placement ``planned`` of another program.

    ``held`` are the devices of the captured variables by placeholder.  What touches a variable
    runs where it lives; an op that the planned program has too runs where it does there; any
    other follows its first placed input, a constant its first reader, and what has no kernel there
    goes to the host.
    """
    nodes = program.graph_def.node
    fixed = dict.fromkeys(program.fed_ops, HOST)
    fixed |= held
    for op, handles in touched_handles(nodes):
        found = [held[name] for name in handles if name in held]
        fixed |= {op: found[0]} if found else {}
    placement = {n.name: fixed.get(n.name) or planned.get(n.name) for n in nodes}
    for node in nodes:
        placement[node.name] = placement[node.name] or _first(node.input, placement)
    for node in reversed(nodes):
        for name in map(source_of, node.input):
            placement[name] = placement[name] or placement[node.name]
    return {node.name: _possible(node, placement[node.name] or HOST, fixed) for node in nodes}


def _first(references: Any, placement: Mapping[str, str | None]) -> str | None:
    return next((placement[name] for name in map(source_of, references) if placement[name]), None)


def _possible(node: Any, device: str, fixed: Mapping[str, str]) -> str:
    return device if node.name in fixed or has_kernel(node, device) else HOST
