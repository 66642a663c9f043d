"""The attributes of a networkx graph as rows of a problem's document."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from cost_models.device_names import canonical, matches
from cost_models.devices import DeviceProperties
from cost_models.op_cost import OpCost
from cost_models.roofline import op_seconds
from placer.errors import UsageError

if TYPE_CHECKING:
    from networkx import DiGraph, MultiDiGraph


Attributes = Mapping[str, Any]
"""Attributes of a node or an edge."""

Document = dict[str, Any]
"""The content of a ``placer.problem/1`` file."""


def check_spelling(where: str, found: Attributes, read: Sequence[str]) -> None:
    """Raises :class:`UsageError` for an attribute that is nearly the name of one that is read."""
    for name in found:
        if name not in (*read, "device", "position"):
            near = get_close_matches(str(name), read, n=1, cutoff=0.8)
            if near:
                raise UsageError(f"the {where} has {name!r}; did you mean {near[0]!r}?")


def node_row(
    node: Hashable,
    found: Attributes,
    names: Sequence[str],
    properties: Sequence[DeviceProperties] | None,
    host: str,
) -> Document:
    """Returns the row of one op, devices as numbers; ``group`` as it was given."""
    pins, able = (devices_of(node, found, name, names) for name in ("pin", "allowed"))
    accelerators = [name for name in names if name != host]
    allowed = pins or (able if "allowed" in found else accelerators or [host])
    is_free = not pins and "allowed" not in found
    seconds = _seconds(node, found, names, properties)
    # of work that nobody knows, the host would cost nothing
    is_known = any(seconds[names.index(name)] for name in accelerators)
    spillable = _flag(node, found, "spillable", default=is_free and is_known)
    return {
        "resident_bytes": _size(node, found, "resident_bytes"),
        "temporary_bytes": _size(node, found, "temporary_bytes"),
        "seconds": seconds,
        "group": found.get("group"),
        "allowed": [names.index(name) for name in allowed],
        "able": [names.index(name) for name in (able or accelerators)],
        "spillable": spillable,
    }


def edges_of(
    graph: DiGraph[Any] | MultiDiGraph[Any], number: Mapping[Hashable, int]
) -> tuple[list[tuple[int, int, list[int], int]], list[tuple[int, int]]]:
    """Tensors as (position, producer, readers, bytes), and control edges.

    The position is ``tensor`` where all are numbers, else that of its first edge.
    """
    control: list[tuple[int, int, int]] = []
    tensors: dict[tuple[Hashable, Hashable], tuple[int, list[int], int]] = {}
    for count, (source, target, found) in enumerate(graph.edges(data=True)):
        if _flag(f"{source} -> {target}", found, "control", default=False):
            control.append((int(found.get("position", 0)), number[target], number[source]))
            continue
        sizes = found if found.get("bytes") is not None else {
            "bytes": _size(source, graph.nodes[source], "output_bytes")
        }  # fmt: skip
        size = _size(f"{source} -> {target}", sizes, "bytes")
        own = ("edge", count) if found.get("bytes") is not None else ("output", 0)
        key = (source, found.get("tensor", own))
        known = tensors.setdefault(key, (number[source], [], size))
        if known[2] != size:
            raise UsageError(
                f"the tensor {key[1]!r} of node {source!r} has {known[2]} bytes on one edge and "
                f"{size} on another; it is one tensor"
            )
        known[1].append(number[target])
    given = [name for _, name in tensors if type(name) is int]
    counted = len(set(given)) == len(tensors)
    positions: Sequence[int] = given if counted else range(len(tensors))
    placed = [
        (position, producer, sorted(set(ops)), size)
        for position, (producer, ops, size) in zip(positions, tensors.values(), strict=True)
    ]
    return placed, [(before, after) for _, after, before in sorted(control)]


def devices_of(node: Hashable, found: Attributes, name: str, known: Sequence[str]) -> list[str]:
    """The devices that attribute ``name`` of a node names, ``GPU:*`` being every GPU."""
    given = found.get(name, ())
    if isinstance(given, str):
        given = [given]
    chosen: dict[str, None] = {}
    try:
        for spelling in given:
            star = isinstance(spelling, str) and "*" in spelling
            meant = [
                other
                for other in known
                if (matches(spelling, other) if star else canonical(spelling) == other)
            ]
            if not meant:
                raise ValueError(spelling)
            chosen |= dict.fromkeys(meant)
    except (AttributeError, TypeError, ValueError) as error:
        raise _wrong(node, name, given, f"among the devices {', '.join(known)}") from error
    return list(chosen)


def _flag(node: Hashable, found: Attributes, name: str, *, default: bool) -> bool:
    value = found.get(name, default)
    if not isinstance(value, bool):
        raise _wrong(node, name, value, "true or false")
    return value


def _size(node: Hashable, found: Attributes, name: str) -> int:
    """A whole number of bytes that is not negative; 0 if there is none."""
    value = found.get(name, 0)
    try:
        size = None if isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):
        size = None
    if size is None or size < 0 or size != value:
        raise _wrong(node, name, value, "a whole number of bytes")
    return size


def _seconds(
    node: Hashable,
    found: Attributes,
    names: Sequence[str],
    properties: Sequence[DeviceProperties] | None,
) -> list[float]:
    """The seconds of a node on every device."""
    given = found.get("seconds")
    if given is None:
        cost = OpCost(
            flops=_size(node, found, "flops"), bytes_accessed=_size(node, found, "bytes_accessed")
        )
        if properties is None or not (cost.flops or cost.bytes_accessed):
            return [0.0] * len(names)
        return [op_seconds(cost, device) for device in properties]
    if not isinstance(given, Mapping):
        return [_number(node, given)] * len(names)
    by_name = {str(name): _number(node, value) for name, value in given.items()}
    seconds = [by_name.get(name, by_name.get(name.rpartition(":")[0])) for name in names]
    if None in seconds:
        missing = names[seconds.index(None)]
        raise _wrong(node, "seconds", given, f"a time for {missing}, too")
    return [value for value in seconds if value is not None]


def _number(node: Hashable, value: Any) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not 0 <= found < math.inf:
        raise _wrong(node, "seconds", value, "a time in seconds")
    return found


def _wrong(node: Hashable, name: str, value: Any, wanted: str) -> UsageError:
    return UsageError(f"{name} of {node!r} is {value!r}, which is not {wanted}")
