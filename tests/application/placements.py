"""Placements for tests, and what they should send, written from the definition alone."""

from __future__ import annotations

from types import SimpleNamespace

from placer.application.shared_variables import touched_handles


def cut_placement(program, devices):
    """Contiguous blocks of the topological order, groups of one resource or _class kept whole."""
    from networkx.utils import UnionFind

    nodes = program.graph_def.node
    names = {node.name for node in nodes}
    union = UnionFind(names)
    for op, handles in touched_handles(nodes):
        union.union(op, *handles)
    for node in nodes:
        for entry in node.attr["_class"].list.s if "_class" in node.attr else ():
            if entry.decode().removeprefix("loc:@") in names:
                union.union(node.name, entry.decode().removeprefix("loc:@"))
    first = {}
    for number, node in enumerate(nodes):
        if node.op != "VarHandleOp":
            first.setdefault(union[node.name], number)
    groups = sorted(first, key=first.get)
    block = {group: devices[i * len(devices) // len(groups)] for i, group in enumerate(groups)}
    placement = {node.name: block.get(union[node.name], devices[0]) for node in nodes}
    return placement | {item.tensor.partition(":")[0]: "CPU:0" for item in program.inputs}


def expected_transfers(program, placement):
    """One row per tensor and reading device, per control edge's op and waiting device, and per
    output that is not on the host."""
    feeds = {item.tensor for item in program.inputs}
    kinds = {}
    for node in program.graph_def.node:
        for name in node.input:
            tensor = name if name.startswith("^") or ":" in name else f"{name}:0"
            source = placement[tensor.lstrip("^").partition(":")[0]]
            if source != placement[node.name]:
                kind = "control" if name.startswith("^") else "feed" if tensor in feeds else "data"
                kinds[tensor, source, placement[node.name]] = kind
    for _, tensor in program.outputs:
        device = placement[tensor.partition(":")[0]]
        if device != "CPU:0":
            kinds.setdefault((tensor, device, "CPU:0"), "fetch")
    return [
        {"tensor": t, "from": a, "to": b, "bytes": None, "kind": kind, "memory": "device"}
        for (t, a, b), kind in kinds.items()
    ]


def plan_for(program, placement, **bindings):
    """As much of a plan as application reads."""
    return SimpleNamespace(
        placement=placement,
        variables={variable.name: placement[variable.handle] for variable in program.variables},
        transfers=expected_transfers(program, placement),
        model={"fingerprint": program.fingerprint, "signature": program.signature},
        bindings=bindings,
    )
