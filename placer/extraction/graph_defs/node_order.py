"""The topological order of NodeDefs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from placer.graph.order import BACK_EDGE_TARGETS, is_back_edge, sort_topologically


def order_nodes(nodes: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of ``nodes``, producers first, otherwise in the given order.

    Inputs that ``nodes`` does not hold order nothing.  Raises :class:`ModelError` with the ops of
    a cycle that is no v1 loop.
    """
    sources = {name: list(map(source_of, node.input)) for name, node in nodes.items()}
    return order_after({name: node.op for name, node in nodes.items()}, sources)


def source_of(reference: str) -> str:
    """The op that an input of a main graph reads or waits for."""
    return reference.lstrip("^").partition(":")[0]


def order_after(
    op_types: Mapping[str, str], sources: Mapping[str, Iterable[str]]
) -> tuple[str, ...]:
    """As :func:`order_nodes`, of ops that are known by their types, and by what each reads."""
    return sort_topologically(
        {name: _producers(kind, sources[name], op_types) for name, kind in op_types.items()}
    )


def _producers(op_type: str, sources: Iterable[str], op_types: Mapping[str, str]) -> Sequence[str]:
    found = [name for name in dict.fromkeys(sources) if name in op_types]
    if op_type not in BACK_EDGE_TARGETS:
        return found
    return [name for name in found if not is_back_edge(op_types[name], op_type)]
