"""Whether what a document says of a problem is of the kinds that its fields hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placer.problem.placement_problem import PlacementProblem

_WHOLE = (
    "resident_bytes",
    "temporary_bytes",
    "transient_bytes",
    "working_set_bytes",
    "group",
    "colocation",
    "capacity_bytes",
    "tables",
    "parallel_ops",
    "fetched",
)


def check_kinds(problem: PlacementProblem) -> None:
    """Raises ``ValueError`` if something in a document is not of the kind that its field holds."""
    for name in ("op_names", "device_names"):
        _require("text", name, getattr(problem, name))
    for name in _WHOLE:
        _require("a whole number", name, getattr(problem, name))
    for name in ("spillable", "occupied"):
        _require("true or false", name, getattr(problem, name))
    for name in ("seconds", "bandwidth", "latency"):
        _require("a number from 0 on", name, _rows(problem, name))
    for name in ("allowed", "control_edges", "slower_bytes"):
        _require("a whole number", name, _rows(problem, name))
    tensors, moments = problem.tensors, problem.live_bytes
    sizes = chain((t.bytes for t in tensors), *(moment.values() for moment in moments))
    _require("a whole number", "bytes", sizes)
    ends = chain.from_iterable((tensor.producer, *tensor.consumers) for tensor in tensors)
    _require("a whole number", "a tensor", ends)
    _require("a whole number", "host", [problem.host])
    _require("a whole number", "message_bytes", [problem.message_bytes])
    _require("true or false", "multicast", [problem.multicast])
    for request in problem.requests:
        named = [*request.ops, *request.devices, *chain.from_iterable(request.groups)]
        _require("a whole number", "a request", named)
    wrong = [edge for edge in problem.control_edges if len(edge) != 2]
    if wrong:
        raise ValueError(f"control_edges has {wrong[0]!r}, which is not a pair of ops")


def _rows(problem: Any, name: str) -> Iterator[Any]:
    """The numbers in the rows of a field; raises ``ValueError`` for one that has none."""
    rows = getattr(problem, name)
    if isinstance(rows, str) or any(isinstance(row, str) for row in rows):
        raise ValueError(f"{name} must have rows of numbers, got {rows!r}")
    return chain.from_iterable(rows)


_KINDS = {
    "text": (str,),
    "a whole number": (int,),
    "true or false": (bool,),
    "a number from 0 on": (int, float),
}


def _require(kind: str, what: str, items: Iterable[Any]) -> None:
    types = _KINDS[kind]
    for item in items:
        if type(item) not in types or (float in types and not item >= 0):
            raise ValueError(f"{what} has {item!r}, which is not {kind}")
