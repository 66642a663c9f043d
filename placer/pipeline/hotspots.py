"""Where a step is busy: groups of ops with the most time, and scopes that tell something."""

from collections.abc import Collection, Mapping, Sequence

from cost_models.op_cost import OpCost
from placer.graph.name_scopes import scope_of
from placer.graph.walks import grouped
from placer.plan.report import Hotspot

HOTSPOT_COUNT = 10
"""Hotspots and live buffers are listed largest first; a person reads ten."""

WorkDone = tuple[int, int, int]
"""Flops, bytes read and written, and bytes of the outputs."""


def work_of(cost: OpCost) -> WorkDone:
    """The work of one op."""
    return cost.flops, cost.bytes_accessed, sum([size or 0 for size in cost.output_bytes])


def find_hotspots(
    groups: Mapping[str, Sequence[str]], work: Mapping[str, WorkDone], seconds: Mapping[str, float]
) -> tuple[Hotspot, ...]:
    """The groups of ops with the most busy ``seconds``, largest first."""
    spots = [hotspot_of(name, ops, work, seconds) for name, ops in groups.items()]
    spots.sort(key=lambda spot: (-spot.seconds, -spot.bytes_accessed, spot.name))
    return tuple(spots[:HOTSPOT_COUNT])


def hotspot_of(
    name: str, ops: Collection[str], work: Mapping[str, WorkDone], seconds: Mapping[str, float]
) -> Hotspot:
    """One group of ops: its work, and its busy ``seconds``."""
    flops, bytes_accessed, output_bytes = map(sum, zip(*[work[op] for op in ops], strict=True))
    return Hotspot(
        name=name,
        op_count=len(ops),
        flops=flops,
        bytes_accessed=bytes_accessed,
        output_bytes=output_bytes,
        seconds=sum([seconds[op] for op in ops]),
    )


def telling_scopes(busy: Mapping[str, float]) -> dict[str, list[str]]:
    """Ops by name scope, each scope as deep as it takes to tell something.

    A scope that holds more than a quarter of the ``busy`` seconds is opened: an exported model has
    everything in one or two outer scopes.  It stays closed where that would scatter it, no scope
    in it holding a hundredth of it.  What lies directly in an opened one is named so.
    """
    large = sum(busy.values()) / 4
    closed: dict[str, list[str]] = {}
    opened = [("", 0, list(busy))]
    while opened:
        scope, depth, ops = opened.pop()
        inner = grouped((scope_of(op, depth + 1), op) for op in ops)
        seconds = {name: sum([busy[op] for op in members]) for name, members in inner.items()}
        largest = max((seconds[name] for name in inner if name != scope), default=0.0)
        if depth and largest < sum(seconds.values()) / 100:
            closed.setdefault(scope, []).extend(ops)
            continue
        for name, members in inner.items():
            if name != scope and seconds[name] > large:
                opened.append((name, depth + 1, members))
            else:
                rest = f"{scope}/ (not in a sub-scope)" if scope and name == scope else name
                closed.setdefault(rest, []).extend(members)
    return closed
