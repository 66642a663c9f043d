"""Simpler problems whose least cost is a lower bound of the problem's.

Every placement of the problem is one of the simpler problem too, and costs no more there:

1. *Light units weigh nothing.*  Less weight breaks no row.  The lightest units lose theirs,
   together at most :data:`LIGHT_SHARE` of every row.
2. *Bytes are multiples of a quantum.*  Rounded down, they cost less.  The quantum is the largest
   cost of a net or unit with which a known placement loses at most the share that is asked for.
   So many nets have no bytes left, and those that do have few different costs.
3. *Sand.*  Units that may be anywhere, have no nets left and are small beside every capacity weigh
   nothing either.  What is lost is little: wherever the others are, there is room for grains as
   long as there is room for everything.

What is exact (:mod:`placer.solving.reduction.contraction`) then reaches further: units without
weight follow their neighbours.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from placer.solving.reduction.contraction import contract
from placer.solving.reduction.unit_problem import UnitProblem, merge_units

LIGHT_SHARE = 0.001
_GRAIN_SHARE = 0.01


def relax(problem: UnitProblem, known: Sequence[int], loss: float) -> UnitProblem:
    """A simpler problem that costs nowhere more than ``problem``; the placement ``known`` of its
    units loses at most the share ``loss`` of its cost."""
    rounded = _with_whole_quanta(problem, largest_quantum(problem, known, loss))
    weighed = _without_weight(rounded, _light_units(problem))
    return _without_sand(contract(weighed, weighed.value(known)))


def with_one_accelerator(problem: UnitProblem) -> UnitProblem:
    """The problem of two devices in which all but the host are one, with their capacities added:
    device 0 is that one, 1 the host.  No placement costs more there: nothing is sent between
    accelerators, and every unit costs what it does on the best of them."""
    others = [device for device in range(problem.device_count) if device != problem.host]

    def merged(devices: Sequence[int]) -> tuple[int, ...]:
        on_one = any(device != problem.host for device in devices)
        return (*([0] if on_one else []), *([1] if problem.host in devices else []))

    def least(costs: Sequence[int], devices: Sequence[int]) -> tuple[int, int]:
        able = [device for device in devices if device != problem.host] or others
        return min(costs[device] for device in able), costs[problem.host]

    units = zip(problem.cost, problem.allowed, strict=True)
    return replace(
        problem,
        device_count=2,
        host=1,
        allowed=tuple(merged(devices) for devices in problem.allowed),
        rows=tuple(
            replace(
                row,
                capacity=(
                    sum(row.capacity[device] for device in others),
                    row.capacity[problem.host],
                ),
            )
            for row in problem.rows
        ),
        cost=tuple(least(costs, devices) for costs, devices in units),
    )


def largest_quantum(problem: UnitProblem, known: Sequence[int], loss: float) -> int:
    """The largest cost that all costs can be rounded down to multiples of, so that ``known``
    loses at most the share ``loss`` of its own; one if there is none."""
    paid = [
        (net.bytes, len({known[c] for c in net.consumers} - {known[net.producer]}))
        for net in problem.nets
    ]
    paid += [(costs[device], 1) for costs, device in zip(problem.cost, known, strict=True)]
    paid = [(size, times) for size, times in paid if times]
    most = loss * sum(size * times for size, times in paid)
    sizes = {net.bytes for net in problem.nets}.union(*problem.cost)
    for quantum in sorted(sizes - {0}, reverse=True):
        if sum(size % quantum * times for size, times in paid) <= most:
            return quantum
    return 1


def _with_whole_quanta(problem: UnitProblem, quantum: int) -> UnitProblem:
    rounded = replace(
        problem,
        nets=tuple(replace(net, bytes=net.bytes // quantum * quantum) for net in problem.nets),
        cost=tuple(tuple(c // quantum * quantum for c in costs) for costs in problem.cost),
    )
    return merge_units(rounded, range(problem.unit_count))  # which drops nets without bytes


def _light_units(problem: UnitProblem) -> set[int]:
    """The lightest units, which together have at most :data:`LIGHT_SHARE` of every row."""
    totals = [max(1, sum(row.weights)) for row in problem.rows]
    share = [
        sum(row.weights[unit] / total for row, total in zip(problem.rows, totals, strict=True))
        for unit in range(problem.unit_count)
    ]
    left = LIGHT_SHARE
    light = set()
    for unit in sorted(range(problem.unit_count), key=lambda unit: share[unit]):
        left -= share[unit]
        if left < 0:
            break
        light.add(unit)
    return light


def _without_weight(problem: UnitProblem, light: Collection[int]) -> UnitProblem:
    """The problem in which ``light`` units weigh nothing."""
    rows = tuple(
        replace(row, weights=tuple(0 if u in light else w for u, w in enumerate(row.weights)))
        for row in problem.rows
    )
    return replace(problem, rows=rows)


def _without_sand(problem: UnitProblem) -> UnitProblem:
    """The problem in which all grains are one unit without weight."""
    in_nets = {unit for net in problem.nets for unit in (net.producer, *net.consumers)}
    grains = [
        unit
        for unit in range(problem.unit_count)
        if unit not in in_nets
        and len(problem.allowed[unit]) == problem.device_count
        and not any(problem.cost[unit])
        and all(row.weights[unit] <= _GRAIN_SHARE * min(row.capacity) for row in problem.rows)
    ]
    sand = set(grains)
    roots = [grains[0] if unit in sand else unit for unit in range(problem.unit_count)]
    return merge_units(_without_weight(problem, sand), roots)
