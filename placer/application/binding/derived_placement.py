"""A device for every op of a program that has no plan of its own."""

from collections.abc import Mapping

from placer.application.devices.device_mapping import HOST
from placer.application.devices.node_kernels import has_kernel
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.reading.companions import touched_handles
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
        before = (placement[name] for name in map(source_of, node.input))
        placement[node.name] = placement[node.name] or next(filter(None, before), None)
    for node in reversed(nodes):
        for name in map(source_of, node.input):
            placement[name] = placement[name] or placement[node.name]
    devices = {node.name: placement[node.name] or HOST for node in nodes}
    lacking = {n.name for n in nodes if n.name not in fixed and not has_kernel(n, devices[n.name])}
    return devices | dict.fromkeys(lacking, HOST)
