"""Colocation hints (``_class``) that a placed graph may keep.

TensorFlow takes ``_class`` for law: ``import_graph_def`` drops the device of an op that has one and
copies that of an op it names (``_ProcessNewOps`` in ``tensorflow/python/framework/importer.py``),
before the placer runs, which then refuses or moves what is torn (``colocation_graph.cc``).  So what
ties ops on different devices must be gone before a placed graph is imported anywhere.
"""

from collections.abc import Container, Iterable, Mapping
from typing import Any

from placer.extraction.graph_defs.flat_nodes import hinted_op
from placer.graph.op_types import TABLES, VARIABLES
from placer.graph.tensor_names import op_of
from placer.graph.union_find import UnionFind


def release_hints(graph_def: Any, placed: Container[str] | None = None) -> None:
    """Drops, in place, what ``_class`` ties of ops on different devices, in a GraphDef and the
    functions of its library.

    ``placed`` are the ops of the main graph whose devices are to hold, by default all that have
    one; variables and tables with a device are among them.  The others go with the variable that
    they touch, else with whatever they name, as long as that is in one place.
    """
    _release(graph_def.node, placed)
    for function in graph_def.library.function:
        _release(function.node_def, None)


def _release(nodes: Iterable[Any], placed: Container[str] | None) -> None:
    classed = [node for node in nodes if "_class" in node.attr]
    if not classed:
        return
    fixed = {
        node.name: node.device
        for node in nodes
        if node.device
        and (placed is None or node.name in placed or node.op in VARIABLES or node.op in TABLES)
    }
    handles = {node.name for node in nodes if node.op in VARIABLES or node.op in TABLES}
    sets, devices = UnionFind[str](), dict(fixed)
    for node in classed:
        touched = [op for op in map(op_of, node.input) if op in handles and op in fixed]
        if touched and node.name not in fixed:  # a fresh variable's Assign may name another one
            devices[node.name] = node.device = fixed[touched[0]]
        entries = node.attr["_class"].list.s
        kept = [entry for entry in entries if _is_kept(entry, node.name, fixed, sets, devices)]
        if kept:
            entries[:] = kept
        else:
            del node.attr["_class"]


def _is_kept(
    entry: bytes, name: str, fixed: Mapping[str, str], sets: UnionFind[str], devices: dict[str, str]
) -> bool:
    """Whether an entry of the op ``name`` ties nothing on different devices; then its ends are one
    set, and ``devices`` has the device of that by its root.

    An op with a device needs an op on the same one: beside one without any, it would lose its own.
    """
    target = hinted_op(entry)
    if not target:
        return True
    if name in fixed:
        return fixed.get(target) == fixed[name]
    both = {devices.get(sets.root(end), "") for end in (name, target)} - {""}
    if len(both) > 1:
        return False
    root = sets.union(target, name)
    devices.update(dict.fromkeys([root], *both) if both else {})
    return True
