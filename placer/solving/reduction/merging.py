"""Units made one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from placer.solving.reduction.unit_problem import Row, UnitProblem, merge_nets, numbered, with_room


def merge_units(problem: UnitProblem, root_of: Sequence[int]) -> UnitProblem:
    """The problem in which units with the same root are one unit, numbered by first appearance.

    It may use the devices that all of them may use and that have room for all of them.
    """
    new_of = numbered(root_of)
    count = max(new_of, default=-1) + 1
    allowed: list[set[int]] = [set(range(problem.device_count)) for _ in range(count)]
    anchor = [0] * count
    for unit, number in enumerate(new_of):
        allowed[number] &= set(problem.allowed[unit])
        if root_of[unit] == unit:
            anchor[number] = problem.anchor[unit]
    rows = tuple(
        Row(weights=_sums(row.weights, new_of, count), capacity=row.capacity)
        for row in problem.rows
    )
    return replace(
        problem,
        allowed=with_room(rows, allowed),
        nets=merge_nets(problem.nets, new_of),
        rows=rows,
        cost=_sums_by_device(problem.cost, new_of, count),
        unit_of=tuple(new_of[unit] for unit in problem.unit_of),
        anchor=tuple(anchor),
    )


def _sums_by_device(
    costs: Sequence[Sequence[int]], new_of: Sequence[int], count: int
) -> tuple[tuple[int, ...], ...]:
    columns = [_sums(column, new_of, count) for column in zip(*costs, strict=True)]
    return tuple(zip(*columns, strict=True))


def _sums(values: Sequence[int], new_of: Sequence[int], count: int) -> tuple[int, ...]:
    sums = [0] * count
    for value, number in zip(values, new_of, strict=True):
        sums[number] += value
    return tuple(sums)
