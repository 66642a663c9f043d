"""The problem at several scales: units joined by many bytes become one, and are parted again.

After B. Hendrickson, R. Leland, A Multilevel Algorithm for Partitioning Graphs, SC 1995,
doi:10.1145/224170.224228, with clusters instead of matchings.  Unlike the exact reductions this is
a heuristic: whatever is merged here is only where the search begins.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from placer.solving.drafts import drafts, promising
from placer.solving.local_search import improve
from placer.solving.merging import merge_units, number_roots
from placer.solving.occupancy import Incidence, Occupancy
from placer.solving.unit_order import MOST_SPECTRAL_UNITS

_MOST_PINS = 40
"""Larger nets say little about who belongs together."""

_LEAST_UNITS = 150
_UNITS_PER_DEVICE = 60
_PARTS_PER_DEVICE = 60
"""No cluster outweighs this part of an equal share, so that the devices can still be filled."""

_LEAST_SHRINK = 0.93


class Levels:
    """A problem, coarsened step by step.

    With ``device_of`` only units on one device are joined, so that this placement exists at every
    level.
    """

    def __init__(
        self,
        incidence: Incidence,
        seed: int,
        device_of: Sequence[int] | None = None,
    ) -> None:
        rng = random.Random(seed)
        self.incidences = [incidence]
        self.maps: list[list[int]] = []
        problem = incidence.problem
        least = min(
            max(_LEAST_UNITS, _UNITS_PER_DEVICE * problem.device_count), MOST_SPECTRAL_UNITS
        )
        while problem.unit_count > least:
            roots = _cluster(self.incidences[-1], rng, device_of)
            new_of = number_roots(roots)
            coarser = merge_units(problem, roots)
            if coarser.unit_count > _LEAST_SHRINK * problem.unit_count:
                break
            if device_of is not None:
                device_of = _carry(device_of, new_of, coarser.unit_count)
            self.incidences.append(Incidence(coarser))
            self.maps.append(new_of)
            problem = coarser

    def solve(self, deadline: float) -> Occupancy | None:
        """A placement found at the coarsest level and improved at every finer one."""
        coarsest = self.incidences[-1]
        states = [
            Occupancy(coarsest, device_of)
            for device_of in drafts(coarsest)
            if device_of is not None
        ]
        states = promising(states)
        for state in states:
            improve(state, deadline)
        best = min(states, key=lambda state: state.value, default=None)
        return None if best is None else self._refine(best, deadline)

    def improve(self, state: Occupancy, deadline: float) -> Occupancy:
        """``state``, improved at every level from the coarsest on; never worse."""
        device_of: Sequence[int] = state.device_of
        for new_of, incidence in zip(self.maps, self.incidences[1:], strict=True):
            device_of = _carry(device_of, new_of, incidence.problem.unit_count)
        coarse = Occupancy(self.incidences[-1], device_of)
        improve(coarse, deadline)
        return self._refine(coarse, deadline)

    def _refine(self, state: Occupancy, deadline: float) -> Occupancy:
        for new_of, incidence in zip(
            reversed(self.maps), reversed(self.incidences[:-1]), strict=True
        ):
            state = Occupancy(incidence, [state.device_of[number] for number in new_of])
            improve(state, deadline)
        return state


def _carry(device_of: Sequence[int], new_of: Sequence[int], count: int) -> list[int]:
    carried = [0] * count
    for number, device in zip(new_of, device_of, strict=True):
        carried[number] = device
    return carried


def _cluster(
    incidence: Incidence, rng: random.Random, device_of: Sequence[int] | None
) -> list[int]:
    """The root of every unit: each joins the neighbour with which it shares the most bytes per
    net size, unless the cluster becomes too heavy or may use fewer devices."""
    problem = incidence.problem
    most = [
        max(1, sum(row.weights) // (_PARTS_PER_DEVICE * problem.device_count))
        for row in problem.rows
    ]
    root = list(range(problem.unit_count))
    weight = [dict(weights) for weights in incidence.weights]
    order = list(range(problem.unit_count))
    rng.shuffle(order)
    is_root = [False] * problem.unit_count
    for unit in order:
        if is_root[unit]:
            continue
        target = _closest(incidence, unit, root, weight, most, device_of)
        if target is not None:
            root[unit] = target
            is_root[target] = True
            for number, size in weight[unit].items():
                weight[target][number] = weight[target].get(number, 0) + size
    return root


def _closest(
    incidence: Incidence,
    unit: int,
    root: Sequence[int],
    weight: Sequence[dict[int, int]],
    most: Sequence[int],
    device_of: Sequence[int] | None,
) -> int | None:
    """The root of the best cluster for ``unit``, if any is left that it may join."""
    problem = incidence.problem
    allowed = problem.allowed[unit]
    ratings: dict[int, float] = {}
    for number in incidence.out_of[unit] + incidence.into[unit]:
        net = problem.nets[number]
        if len(net.consumers) < _MOST_PINS:
            rating = net.bytes / len(net.consumers)
            for other in (net.producer, *net.consumers):
                ratings[root[other]] = ratings.get(root[other], 0.0) + rating
    ratings.pop(unit, None)
    for target in sorted(ratings, key=lambda target: -ratings[target]):
        if (
            problem.allowed[target] == allowed
            and (device_of is None or device_of[target] == device_of[unit])
            and all(
                size + weight[target].get(number, 0) <= most[number]
                for number, size in weight[unit].items()
            )
        ):
            return target
    return None
