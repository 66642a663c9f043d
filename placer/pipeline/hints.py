"""Colocation hints that a placement does not follow, and what following them would take.

TensorFlow 2's ``tf.gradients`` has nearly every backward op ask (``_class``) for the device of its
forward op, and every sum of gradients for that of one of them: along a residual stream, layer after
layer is asked to one device.  Nothing in the ops needs that, so a placement leaves hints out unless
they are asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from cost_models.byte_sizes import format_bytes
from placer.graph.op_graph import OpGraph
from placer.graph.program_source import Warning_
from placer.graph.union_find import UnionFind
from placer.pipeline.formulation import Formulation
from placer.prediction.scoring import transfer_bytes
from placer.problem.placement_problem import PlacementProblem, ProblemTensor

HINTS_LEFT_OUT = "colocation_hints"
"""The code of the warning that a placement does not follow every hint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedHints:
    """What a placement sends, and what it would send with every hint followed and nothing else
    moved: the ops that hints and law tie gathered on one device, group by group, each where that
    sends least.  Caps are not looked at."""

    transfer_bytes: int
    followed_bytes: int


def hints_apart(graph: OpGraph, placement: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The pairs of ops that a hint ties and ``placement`` parts."""
    pairs = [(group.ops[0], group.ops[1]) for group in graph.colocation_hints]
    return tuple(pair for pair in pairs if placement[pair[0]] != placement[pair[1]])


def hint_warnings(formulation: Formulation, placement: Mapping[str, str]) -> Iterator[Warning_]:
    """A warning if ``placement`` does not follow all hints: how many there are, what those tie that
    are left out, and what following them would send."""
    graph = formulation.graph
    apart = hints_apart(graph, placement)
    if not apart:
        return
    tied = dict.fromkeys(chain.from_iterable(apart))
    devices = {placement[name] for name in tied}
    count = f"{len(apart):,} of {len(graph.colocation_hints):,}"
    message = (
        f"{count} colocation hints (_class) are left out, of {len(tied):,} ops on {len(devices)} "
        "devices that nothing else ties"
    )
    found = follow_hints(formulation, placement)
    if found.followed_bytes > found.transfer_bytes:
        message += (
            f": following them would send {format_bytes(found.followed_bytes)} for "
            f"{format_bytes(found.transfer_bytes)}, with all other ops where they are"
        )
    yield HINTS_LEFT_OUT, f"{message}; --keep-colocation makes hints law", tuple(tied)


def follow_hints(formulation: Formulation, placement: Mapping[str, str]) -> FollowedHints:
    """What ``placement`` sends with and without every hint followed."""
    problem = formulation.problem
    number = {name: op for op, name in enumerate(problem.op_names)}
    device_number = {name: device for device, name in enumerate(problem.device_names)}
    device_of = [device_number[placement[name]] for name in problem.op_names]
    followed = list(device_of)
    incident = _incident(problem)
    for group in _tied_groups(formulation, number):
        there = sorted({followed[op] for op in group})
        if len(there) > 1:
            tensors = dict.fromkeys(chain.from_iterable(incident[op] for op in group))
            parts = _unmoved(problem, tensors, group, followed)
            best = min(there, key=lambda device: (_sent(parts, device), device))
            for op in group:
                followed[op] = best
    return FollowedHints(
        transfer_bytes=transfer_bytes(problem, device_of),
        followed_bytes=transfer_bytes(problem, followed),
    )


def _tied_groups(formulation: Formulation, number: Mapping[str, int]) -> list[list[int]]:
    """The ops that law and hints together tie, as numbers, the largest group first."""
    sets = UnionFind()
    for group in (*formulation.constraints.groups, *formulation.graph.colocation_hints):
        sets.union(*group.ops)
    members: dict[str, list[int]] = {}
    for name, op in number.items():
        members.setdefault(sets.root(name), []).append(op)
    return sorted(members.values(), key=lambda ops: (-len(ops), ops[0]))


def _incident(problem: PlacementProblem) -> list[list[int]]:
    """The tensors that each op gives or reads."""
    found: list[list[int]] = [[] for _ in problem.op_names]
    for index, tensor in enumerate(problem.tensors):
        for op in {tensor.producer, *tensor.consumers}:
            found[op].append(index)
    return found


_Part = tuple[int, int | None, frozenset[int], bool]
"""Of a tensor its bytes, where its producer is (``None``: in the group), where readers outside the
group are, and whether one is in the group."""


def _unmoved(
    problem: PlacementProblem,
    tensors: Collection[int],
    group: Sequence[int],
    device_of: Sequence[int],
) -> list[_Part]:
    """What of the ``tensors`` stays where it is, wherever the ``group`` goes."""
    inside = frozenset(group)

    def part(tensor: ProblemTensor) -> _Part:
        source = None if tensor.producer in inside else device_of[tensor.producer]
        outside = frozenset(device_of[op] for op in tensor.consumers if op not in inside)
        return tensor.bytes, source, outside, not inside.isdisjoint(tensor.consumers)

    return [part(problem.tensors[index]) for index in tensors]


def _sent(parts: Sequence[_Part], device: int) -> int:
    """The bytes sent of the tensors of a group that is on ``device``."""
    total = 0
    for size, source, outside, is_read in parts:
        readers = outside | {device} if is_read else outside
        total += size * len(readers - {device if source is None else source})
    return total
