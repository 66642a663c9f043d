"""A first placement without OR-Tools and without compiled code: what is left if the search fails.

Orders of the units, as they come and by the bytes that they share, are cut into one segment per
device where the least crosses, or filled into device after device; of the best placement, single
units move to where they cost less.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from placer.problem.placement_problem import ProblemTensor
from placer.solving.process import clock
from placer.solving.reduction.unit_problem import UnitProblem
from placer.solving.search.linear_split import split

_MOST_READERS = 16
"""Nets with more say little about who belongs together, and take long to go through."""

_NULL = 1e-9

Matrix = npt.NDArray[np.float64]
Placement = tuple[int, ...]


def first_placement(
    problem: UnitProblem, hints: Sequence[Sequence[int]], deadline: float, least: int = 0
) -> Placement | None:
    """The best of the ``hints`` that keep all limits and of a few fillings, ``None`` if there is
    none; after ``deadline`` (``clock.monotonic()``) no filling is begun but to find any, and none
    where a placement costs the ``least`` that is possible."""
    found = [_ranked(problem, tuple(hint)) for hint in hints if problem.is_feasible(hint)]
    for placement in _fillings(problem) if all(problem.allowed) else ():
        if placement is not None and problem.is_feasible(placement):
            found.append(_ranked(problem, placement))
        if found and (min(found)[0] <= least or clock.monotonic() > deadline):
            break
    return _Descent(problem, min(found)[-1]).run(deadline) if found else None


def _ranked(problem: UnitProblem, placement: Placement) -> tuple[int, tuple[int, float], Placement]:
    """The placement after its value, and what decides between those of one value."""
    return problem.value(placement), problem.tie_rank(placement), placement


class _Descent:
    """Moves of single units that each save bytes; all limits that hold keep holding."""

    def __init__(self, problem: UnitProblem, placement: Sequence[int]) -> None:
        self.problem = problem
        self.device_of = list(placement)
        self.nets_of: list[list[ProblemTensor]] = [[] for _ in placement]
        for net in problem.nets:
            for unit in {net.producer, *net.consumers}:
                self.nets_of[unit].append(net)
        self.loads = [[0] * problem.device_count for _ in problem.rows]
        for load, row in zip(self.loads, problem.rows, strict=True):
            for device, weight in zip(placement, row.weights, strict=True):
                load[device] += weight

    def run(self, deadline: float) -> Placement:
        """The placement once no move saves bytes, or at ``deadline`` (``clock.monotonic()``)."""
        both = enumerate(zip(self.nets_of, self.problem.cost, strict=True))
        waiting = dict.fromkeys(unit for unit, (nets, costs) in both if nets or any(costs))
        while waiting and clock.monotonic() < deadline:
            unit = next(iter(waiting))
            del waiting[unit]
            if self.improve(unit):
                near = (net for net in self.nets_of[unit] if len(net.consumers) <= _MOST_READERS)
                for net in near:
                    waiting.update(dict.fromkeys((net.producer, *net.consumers)))
        return tuple(self.device_of)

    def improve(self, unit: int) -> bool:
        """Moves the unit to where it costs least, if that is not where it is."""
        source = self.device_of[unit]
        others = (d for d in self.problem.allowed[unit] if d != source and self.fits(unit, d))
        best = min([source, *others], key=lambda device: self.cost(unit, device))
        self.device_of[unit] = best
        for load, row in zip(self.loads, self.problem.rows, strict=True):
            load[source] -= row.weights[unit]
            load[best] += row.weights[unit]
        return best != source

    def fits(self, unit: int, device: int) -> bool:
        """Whether every row holds with the unit on that device too."""
        return all(
            load[device] + row.weights[unit] <= row.capacity[device]
            for load, row in zip(self.loads, self.problem.rows, strict=True)
        )

    def cost(self, unit: int, device: int) -> int:
        """Returns the cost of the unit and its nets if it were on that device."""
        self.device_of[unit] = device
        sent = self.problem.cost[unit][device]
        for net in self.nets_of[unit]:
            readers = {self.device_of[reader] for reader in net.consumers}
            sent += net.bytes * len(readers - {self.device_of[net.producer]})
        return sent


def _fillings(problem: UnitProblem) -> Iterator[Placement | None]:
    """Placements along some orders of the units, ``None`` where they do not fit."""
    filling = _Filling(problem)
    for order in (list(range(problem.unit_count)), adjacency_order(problem)):
        yield filling.in_segments(order)
        yield filling.one_by_one(order, goes_back=False)
    # eigenvectors of a dense matrix of this size take a few hundredths of a second
    if problem.nets and 2 < problem.unit_count <= 400:
        for mode in slow_modes(_clique_weights(problem), 2):
            yield filling.in_segments(np.argsort(mode, kind="stable").tolist())
    yield filling.one_by_one(filling.heaviest_first(), goes_back=True)
    if any(costs[problem.host] for costs in problem.cost):
        yield filling.one_by_one(filling.dearest_first(), goes_back=True)


class _Filling:
    """Weights and capacities as floats: beyond 2**53 bytes rounding may fill a device too full."""

    def __init__(self, problem: UnitProblem) -> None:
        self.problem = problem
        rows, count = len(problem.rows), problem.device_count
        self.weights = np.array([row.weights for row in problem.rows], np.float64)
        self.weights = self.weights.reshape(rows, problem.unit_count)
        self.capacity = np.array([row.capacity for row in problem.rows], np.float64)
        self.capacity = self.capacity.reshape(rows, count)
        self.devices = sorted(range(count), key=lambda device: device == problem.host)

    def heaviest_first(self) -> list[int]:
        """The units by the largest share of any row that they take."""
        order: list[int] = np.argsort(-self.shares(), kind="stable").tolist()
        return order

    def dearest_first(self) -> list[int]:
        """The units by what they cost on the host for the room that they take elsewhere."""
        on_host = [costs[self.problem.host] for costs in self.problem.cost]
        worth = np.array(on_host, np.float64) / np.maximum(1e-12, self.shares())
        order: list[int] = np.argsort(-worth, kind="stable").tolist()
        return order

    def shares(self) -> npt.NDArray[np.float64]:
        """The largest share of any row that each unit takes."""
        totals = np.maximum(1.0, self.weights.sum(axis=1, keepdims=True))
        shares: npt.NDArray[np.float64] = (self.weights / totals).max(axis=0, initial=0.0)
        return shares

    def in_segments(self, order: Sequence[int]) -> Placement | None:
        """One segment per device of the units that may use what most may, after the others."""
        allowed = self.problem.allowed
        sets = Counter(frozenset(devices) for devices in allowed if len(devices) > 1)
        common = sets.most_common(1)[0][0] if sets else frozenset()
        is_free = [len(devices) > 1 and common.issubset(devices) for devices in allowed]
        free = np.array([unit for unit in order if is_free[unit]], np.int64)
        room = self.capacity.copy()
        device_of = self._place([unit for unit in order if not is_free[unit]], room, goes_back=True)
        segments = split(self.problem, free, [d for d in self.devices if d in common], room)
        if device_of is None or segments is None:
            return None
        device_of.update(zip(free.tolist(), segments, strict=True))
        return tuple(device_of[unit] for unit in range(len(allowed)))

    def one_by_one(self, order: Sequence[int], *, goes_back: bool) -> Placement | None:
        """Each unit on the first device where it fits, from the last one on unless it
        ``goes_back``; those that have one device only come first."""
        allowed = self.problem.allowed
        order = sorted(order, key=lambda unit: len(allowed[unit]) > 1)
        device_of = self._place(order, self.capacity.copy(), goes_back=goes_back)
        if device_of is None:
            return None
        return tuple(device_of[unit] for unit in range(len(allowed)))

    def _place(
        self, order: Sequence[int], room: npt.NDArray[np.float64], *, goes_back: bool
    ) -> dict[int, int] | None:
        """Device by unit, taken out of ``room[row, device]``; ``None`` if one fits nowhere."""
        device_of: dict[int, int] = {}
        current = 0
        for unit in order:
            weight, allowed = self.weights[:, unit], self.problem.allowed[unit]
            turn = self.devices if goes_back else self.devices[current:] + self.devices[:current]
            fits = (d for d in turn if d in allowed and (weight <= room[:, d]).all())
            device = next(fits, None)
            if device is None:
                return None
            if len(allowed) > 1:
                current = max(current, self.devices.index(device))
            device_of[unit] = device
            room[:, device] -= weight
        return device_of


def adjacency_order(problem: UnitProblem) -> list[int]:
    """The units one after the other, always the one that shares most bytes with those before.

    H. Nagamochi, T. Ibaraki, Computing Edge-Connectivity in Multigraphs and Capacitated Graphs,
    SIAM J. Discrete Math. 5 (1992), doi:10.1137/0405004, on maximum adjacency orderings.
    """
    neighbours: list[dict[int, float]] = [{} for _ in problem.allowed]
    for net in problem.nets:
        if len(net.consumers) <= _MOST_READERS:
            share = net.bytes / len(net.consumers)
            for unit in net.consumers:
                for one, other in ((net.producer, unit), (unit, net.producer)):
                    neighbours[one][other] = neighbours[one].get(other, 0.0) + share
    shared = [0.0] * problem.unit_count
    order: dict[int, None] = {}
    for first in range(problem.unit_count):
        waiting = [(0.0, first)]
        while waiting:
            unit = heapq.heappop(waiting)[1]
            if unit in order:
                continue
            order[unit] = None
            for other, size in neighbours[unit].items():
                if other not in order:
                    shared[other] += size
                    heapq.heappush(waiting, (-shared[other], other))
    return list(order)


def _clique_weights(problem: UnitProblem) -> Matrix:
    """Weights of ties: every net is a clique, its bytes divided among the ties of each unit."""
    weight = np.zeros((problem.unit_count, problem.unit_count))
    for net in problem.nets:
        if len(net.consumers) < 4 * _MOST_READERS:
            pins = np.asarray((net.producer, *net.consumers))
            weight[np.ix_(pins, pins)] += net.bytes / len(net.consumers)
    np.fill_diagonal(weight, 0.0)
    return weight


def slow_modes(weight: Matrix, count: int) -> Matrix:
    """``[mode, unit]``: at most ``count`` positions in which units that share many bytes lie close
    together.

    ``weight[a, b]`` is what ties two units, zero on the diagonal.  The eigenvectors of the smallest
    eigenvalues of the normalised Laplacian (M. Fiedler, A property of eigenvectors of nonnegative
    symmetric matrices and its application to graph theory, 1975), the first of which is the same
    everywhere.  Where nothing joins parts of the graph, as many more only tell the parts, and are
    left out.
    """
    degree = weight.sum(axis=1)
    scale = 1.0 / np.sqrt(np.where(degree > 0.0, degree, 1.0))
    laplacian = np.eye(len(weight)) - scale[:, None] * weight * scale[None, :]
    values, vectors = np.linalg.eigh(laplacian)
    first = max(1, int((values < _NULL).sum()))
    modes = vectors[:, first : first + count] * scale[:, None]
    # the largest entry is positive, so that rounding cannot turn an order round
    largest = modes[np.argmax(np.abs(modes), axis=0), np.arange(modes.shape[1])]
    return np.ascontiguousarray((modes * np.where(largest < 0.0, -1.0, 1.0)).T)
