"""The topological order of NodeDefs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placer.graph.order import BACK_EDGE_TARGETS, is_back_edge, sort_topologically


def order_nodes(nodes: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of ``nodes``, producers first, otherwise in the given order.

    Inputs that ``nodes`` does not hold order nothing.  Raises :class:`ModelError` with the ops of
    a cycle that is no v1 loop.
    """
    return sort_topologically({name: _producers(node, nodes) for name, node in nodes.items()})


def _producers(node: Any, nodes: Mapping[str, Any]) -> list[str]:
    names = dict.fromkeys([name.lstrip("^").partition(":")[0] for name in node.input])
    kind = node.op
    if kind not in BACK_EDGE_TARGETS:
        return [name for name in names if name in nodes]
    return [name for name in names if name in nodes and not is_back_edge(nodes[name].op, kind)]
