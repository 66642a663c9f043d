"""Control inputs that a plan added to a graph: they are marked, to be known again.

A marked control input orders ops and means nothing else: extraction leaves it out, so that a
program keeps its fingerprint when a plan with control edges is applied.
"""

from collections.abc import Collection, Iterable
from typing import Any

from placer.extraction.graph_defs.protobufs import all_nodes
from placer.graph.tensor_names import is_control

ADDED_CONTROL = "_placer_control_inputs"
"""The attribute of a node that names the ops it waits for because a plan says so."""


def added_control(node: Any) -> list[str]:
    """The ops that ``node`` waits for because a plan says so."""
    if ADDED_CONTROL not in node.attr:
        return []
    return [name.decode() for name in node.attr[ADDED_CONTROL].list.s]


def add_control(node: Any, names: Collection[str]) -> None:
    """Makes ``node`` wait for the ops ``names``, and marks those it did not wait for before."""
    there = {name[1:] for name in node.input if is_control(name)}
    new = [name for name in names if name not in there]
    node.input.extend(f"^{name}" for name in new)
    if new:
        node.attr[ADDED_CONTROL].list.s.extend(name.encode() for name in new)


def rename_added_control(node: Any, names: Iterable[str]) -> None:
    """Marks ``names`` in place of those that are marked."""
    if ADDED_CONTROL in node.attr:
        node.attr[ADDED_CONTROL].list.s[:] = [name.encode() for name in names]


def remove_added_control(graph_def: Any) -> None:
    """Takes the marked control inputs out of a GraphDef and its library, in place."""
    for node in all_nodes(graph_def):
        marked = {f"^{name}" for name in added_control(node)}
        if marked:
            node.input[:] = [name for name in node.input if name not in marked]
            del node.attr[ADDED_CONTROL]
