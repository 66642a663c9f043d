"""The topological order of NodeDefs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from placer.graph.order import BACK_EDGE_TARGETS, is_back_edge, sort_topologically


def order_nodes(nodes: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of ``nodes``, producers first, otherwise in the given order.

    Inputs that ``nodes`` does not hold order nothing.  Raises :class:`ModelError` with the ops of
    a cycle that is no v1 loop.
    """
    return order_after(nodes, {name: sources_of(node) for name, node in nodes.items()})


def sources_of(node: Any) -> list[str]:
    """The ops that a node reads or waits for, input by input."""
    return [reference.lstrip("^").partition(":")[0] for reference in node.input]


def order_after(nodes: Mapping[str, Any], sources: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """As :func:`order_nodes`, where it is known already which ops each of them reads."""
    return sort_topologically(
        {name: _producers(node, sources[name], nodes) for name, node in nodes.items()}
    )


def _producers(node: Any, sources: Iterable[str], nodes: Mapping[str, Any]) -> list[str]:
    names = dict.fromkeys(sources)
    kind = node.op
    if kind not in BACK_EDGE_TARGETS:
        return [name for name in names if name in nodes]
    return [name for name in names if name in nodes and not is_back_edge(nodes[name].op, kind)]
