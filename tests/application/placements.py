"""Placements for tests, and what they should send, written from the definition alone."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

from placer.application.devices.node_kernels import has_kernel
from placer.extraction.graph_defs.op_definitions import called_functions
from placer.extraction.reading.companions import touched_handles
from placer.graph.rewriting import NO_REWRITING
from placer.plan.plan import Plan
from placer.prediction.metrics import Transfer


def cut_placement(program, devices):
    """Contiguous blocks of the topological order, groups of one resource or _class kept whole.

    What has no GPU kernel, is fed or is captured as a value goes to the host.
    """
    from networkx.utils import UnionFind

    nodes = program.graph_def.node
    names = {node.name for node in nodes}
    union = UnionFind(names)
    for op, handles in touched_handles(nodes):
        union.union(op, *handles)
    for node in nodes:
        if node.op == "Switch":  # which TensorFlow moves to what it switches
            union.union(node.name, node.input[0].partition(":")[0])
        for entry in node.attr["_class"].list.s if "_class" in node.attr else ():
            if entry.decode().removeprefix("loc:@") in names:
                union.union(node.name, entry.decode().removeprefix("loc:@"))
    first = {}
    for number, node in enumerate(nodes):
        if node.op != "VarHandleOp":
            first.setdefault(union[node.name], number)
    groups = sorted(first, key=first.get)
    block = {group: devices[i * len(devices) // len(groups)] for i, group in enumerate(groups)}
    host = {union[node.name] for node in nodes if not runs_on_gpu(node, program)}
    block |= dict.fromkeys(host, "CPU:0")
    placement = {node.name: block.get(union[node.name], devices[0]) for node in nodes}
    fed = [item.tensor.partition(":")[0] for item in program.inputs]
    return placement | dict.fromkeys((*fed, *program.captured_constants), "CPU:0")


def runs_on_gpu(node, program):
    """Whether the op and every op of the bodies it runs has a GPU kernel; captures may be there."""
    if node.name in program.captures:
        return node.name in {v.handle for v in program.variables if v.dtype != "resource"}
    called = {function.name for _, function in called_functions(node)}
    bodies = [f for f in program.graph_def.library.function if f.signature.name in called]
    inner = [n for body in bodies for n in body.node_def]
    return has_kernel(node, "GPU:0") and all(runs_on_gpu(n, program) for n in inner)


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
        Transfer(tensor=t, source=a, target=b, bytes=None, kind=kind, memory="device")
        for (t, a, b), kind in kinds.items()
    ]


def plan_for(program, placement, **bindings):
    """As much of a plan as application reads."""
    return SimpleNamespace(
        placement=placement,
        check_ops=partial(
            Plan.check_ops, SimpleNamespace(placement=placement, rewriting=NO_REWRITING)
        ),
        variables={variable.name: placement[variable.handle] for variable in program.variables},
        transfers=expected_transfers(program, placement),
        model={"fingerprint": program.fingerprint, "signature": program.signature},
        bindings=bindings,
        control_edges=(),
        warnings=(),
        rewriting=NO_REWRITING,
    )
