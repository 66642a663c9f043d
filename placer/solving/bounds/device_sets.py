"""A bound from the sets of units that a device may hold.

A placement gives each of k devices a set S(d) of units that weighs no more than the largest device
holds, 1; cut(S) are the bytes of the nets with pins on both sides of S, and every net is cut by at
most twice as many sets as it is sent to devices.  So for any worth[u], of either sign, of the units
that are on one of these devices in every placement,

    2 transfer  >=  sum over d of cut(S(d))  >=  worth(all) + k least
    least        =  the least of cut(S) - worth(S) over all sets S that a device holds, at most 0

which is Lagrangean duality on the partition into such sets (E. Johnson, A. Mehrotra, G. Nemhauser,
Min-cut Clustering, Mathematical Programming 62 (1993), doi:10.1007/BF01585164).  Over all S this
says nothing, as all units together have no cut; and with a price on weight, S is as good as a
mixture of next to nothing and everything.  So the sets are divided, by units that are dear to part
from others, *hubs* h(1), h(2), ...:

    case i    h(i) is in S, h(1) ... h(i-1) are not:
              cut(S) - worth(S)  >=  cut(S) - worth(S) + rate(i) (weight(S) - 1)
    case 0    no hub is in S

A host that is larger than the devices holds some set H besides, which gives

    2 cost  >=  worth(all) + k least + the least of cut(H) + 2 cost(H) - worth(H) over all sets H

with what units cost more there; that is one more minimum cut.

Each is one minimum cut.  With a rate of its own for every case, what is mixed must have h(i) and
none of the hubs before, which neither next to nothing nor everything has for free.

Worths and rates are looked for by cutting planes: whatever sets are found bound a linear program,
whose best worths give the next sets (J. Kelley, The Cutting-Plane Method for Solving Convex
Programs, J. SIAM 8 (1960), doi:10.1137/0108053), tried between that and the best so far.  To keep
it small a worth is a price per weight, one per *region* (units that share many bytes, some three to
a device), and one more on every hub.  What is proven is counted in whole bytes and holds for any.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from ortools.linear_solver import pywraplp

from placer.solving.bounds.bounded_units import BoundedUnits
from placer.solving.bounds.cut_graph import CutGraph
from placer.solving.compiled.arrays import Floats, Ints
from placer.solving.compiled.coarsening import coarser_levels
from placer.solving.search.unit_arrays import transfer_arrays

_REGIONS = 24

_ONE = 1 << 20
"""The largest device, in weights."""

_MOST = 1 << 36
"""Bytes sent: twice as many for every weight, of eight devices and more, are kept below 2**63."""


_HOST = -1
"""The case of a set on the host."""


class _Set(NamedTuple):
    """A set found in a case, with its cut, and what it costs on the host if it is there."""

    case: int
    nodes: Ints
    cut: int


class _Worths(NamedTuple):
    """In bytes: ``region`` per device full of its weight, ``hub`` on each, ``rate`` per case."""

    region: Floats
    hub: Floats
    rate: Floats

    def towards(self, other: _Worths, part: float) -> _Worths:
        return _Worths(*((1.0 - part) * a + part * b for a, b in zip(self, other, strict=True)))


def bound_by_sets(
    bounded: BoundedUnits, note_bound: Callable[[int], None], deadline: float, steps: int
) -> None:
    """Looks for a bound until ``deadline``, in at most ``steps`` steps in the scale that a few
    steps find the most in, then in larger ones: what is known to be sent may be many times the
    least, and steps are too long then.

    Raises ``OverflowError`` if prices do not fit into 64 bits.
    """
    # scales, each half of the next, of which the largest is what is known to be sent
    share = 0.08 * (deadline - time.time())
    tried = []
    for halvings in reversed(range(5)):
        tried.append(DeviceSetBound(bounded, note_bound, bounded.known >> halvings))
        tried[-1].run(time.time() + share, min(steps, 8))
    best = max(tried, key=lambda each: (each.bound, each.known))
    for each in tried[tried.index(best) :]:
        each.run(deadline, steps)


class DeviceSetBound:
    """The bound of the problem of ``bounded``; ``note_bound`` is called with every better one in
    bytes.  None is above ``scale``, by default what is known to be sent.

    Raises ``OverflowError`` if prices do not fit into 64 bits.
    """

    def __init__(
        self,
        bounded: BoundedUnits,
        note_bound: Callable[[int], None],
        scale: int | None = None,
    ) -> None:
        self.bounded = bounded
        self.note_bound = note_bound
        self.known = bounded.known if scale is None else scale
        self.count = len(bounded.devices)
        self.bound = 0
        self.hubs: Ints = np.zeros(0, np.int64)
        if self.known <= 0 or self.count < 2 or bounded.share.sum() <= 1.0:
            return  # nothing is sent, or one device holds everything
        if self.known > _MOST:
            raise OverflowError("prices of weights do not fit into 64 bits")
        is_asked = np.zeros(bounded.problem.unit_count, np.bool_)
        is_asked[bounded.asked] = True
        self.graph = CutGraph(
            bounded.problem,
            is_asked,
            bounded.outside,
            ceiling=self.known,
            least_bytes=int(5e-4 * self.known),
        )
        units = bounded.graph_units(self.graph)
        self.on_host = bounded.on_host(self.graph)
        self.weight = np.zeros(self.graph.count, np.int64)
        whole = np.floor(bounded.share[units] * _ONE * (1.0 - 1e-9)).astype(np.int64)
        np.add.at(self.weight, self.graph.node_of[units], whole)
        self._divide()

    def _divide(self) -> None:
        """The region of every node (-1: without weight), and the hubs, the dearest first."""
        graph, problem = self.graph, self.bounded.problem
        label = np.arange(problem.unit_count)
        random = np.random.default_rng(0)
        levels = coarser_levels(
            transfer_arrays(problem),
            self.bounded.share + 1e-9,
            0.3,  # of the largest device, at most
            _REGIONS,
            np.zeros(problem.unit_count, np.int64),
            lambda: int(random.integers(1 << 31)),
        )
        for _, new_of in levels:
            label = new_of[label]
        here = graph.node_of >= 0
        shares = np.zeros((graph.count, int(label.max(initial=0)) + 1))
        np.add.at(shares, (graph.node_of[here], label[here]), self.bounded.share[here] + 1e-9)
        region = shares.argmax(axis=1)
        size = np.bincount(region, self.weight, minlength=shares.shape[1])
        # hubs: of the heaviest regions, what is on one of the devices whatever the placement
        may_be = np.zeros(graph.count, np.bool_)
        may_be[graph.node_of[here & self.bounded.there]] = True
        incident = graph.cuts.incident()
        heavy = [r for r in np.argsort(-size, kind="stable")[:_REGIONS] if size[r]]
        found = []
        for number in heavy:
            members = np.flatnonzero((region == number) & may_be)
            if len(members) and size[number] >= 0.02 * _ONE:  # with a hub
                found.append(members[incident[members].argmax()])
        hubs = np.array(found, np.int64)
        self.hubs = hubs[np.argsort(-incident[hubs], kind="stable")]
        weighty = self.weight > 0
        used = np.unique(region[weighty])
        self.region = np.where(weighty, np.searchsorted(used, region), -1)
        self.region_weights = np.bincount(
            self.region[weighty], self.weight[weighty] / _ONE, minlength=len(used)
        )

    def run(self, deadline: float, steps: int) -> None:
        """Look for worths until ``deadline`` (of ``time.time()``), ``steps`` steps at most."""
        if not len(self.hubs):
            return
        program = _Program(self)
        best, highest = self.even(0.0), 0
        for seed in (0.25, 0.5, 1.0, 2.0):  # worth of all units, for the first sets
            program.add(self._sets(self.even(seed * self.known), deadline)[1])
        for step in range(1, steps + 1):
            limit, far = program.solve()
            gain = limit - max(highest, 2.0 * self.bound)
            if time.time() > deadline or gain < 0.002 * self.known:  # less can be gained: the end
                return
            # one step in five goes as far as the linear program says
            part = 1.0 if step % 5 == 0 else 0.3
            tried = best.towards(far, part)
            value, sets = self._sets(tried, deadline)
            if value is not None and value > highest:
                best, highest = tried, value
                proven = min(self.known, -(-value // 2))
                if proven > self.bound:
                    self.bound = proven
                    self.note_bound(proven)
            if step % 32 == 0:  # sets that bounded nothing since are forgotten
                program = program.pruned()
            program.add(sets)

    def even(self, worth: float) -> _Worths:
        """The ``worth`` of all units, in proportion to their weight."""
        rate = worth / self.region_weights.sum()
        regions, hubs = len(self.region_weights), len(self.hubs)
        return _Worths(np.full(regions, rate), np.zeros(hubs), np.full(hubs, rate))

    def _sets(self, worths: _Worths, deadline: float) -> tuple[int | None, list[_Set]]:
        """Twice the bound that ``worths`` prove (``None``: not all cases were tried until
        ``deadline``), and the best set of every case."""
        worth = np.zeros(self.graph.count, np.int64)
        weighty = self.region >= 0
        worth[weighty] = np.rint(
            worths.region[self.region[weighty]] * (self.weight[weighty] / _ONE)
        )
        worth[self.hubs] += np.rint(worths.hub).astype(np.int64)
        least, none = 0, self.hubs[:0]
        found: list[_Set] = []
        for case in range(len(self.hubs) + 1):
            if time.time() > deadline:
                return None, found
            rate = 0 if case == 0 else int(worths.rate[case - 1])
            price = rate * self.weight // _ONE - worth
            inside = none if case == 0 else self.hubs[case - 1 : case]
            outside = self.hubs if case == 0 else self.hubs[: case - 1]
            value, nodes = self.graph.least_signed(price, inside, outside)
            least = min(least, value - rate)
            found.append(_Set(case, nodes, value - int(price[nodes].sum())))
        twice = int(worth.sum()) + self.count * least
        if self.on_host is not None:
            price = self.on_host.twice - worth
            value, nodes = self.graph.least_signed(
                price, self.on_host.always, self.on_host.never, of_any=True
            )
            twice += value
            found.append(_Set(_HOST, nodes, value + int(worth[nodes].sum())))
        return twice, found


class _Program:
    """The linear program over worths and rates, in shares of the scale."""

    def __init__(self, bound: DeviceSetBound) -> None:
        self.bound = bound
        self.rows: list[tuple[_Set, pywraplp.Constraint]] = []
        self.tight: set[int] = set()
        self.hub_number = {int(node): number for number, node in enumerate(bound.hubs)}
        # GLOP gives up on many of these
        self.solver = pywraplp.Solver.CreateSolver("CLP") or pywraplp.Solver.CreateSolver("GLOP")
        most, number = 2.0, self.solver.NumVar  # worth of a device full, or a hub
        self.region = [number(-most, most, "") for _ in bound.region_weights]
        self.hub = [number(-most, most, "") for _ in bound.hubs]
        self.rate = [number(0.0, most, "") for _ in bound.hubs]
        lowest = -2.0 * most * len(self.region)
        self.least = number(lowest, 0.0, "")
        self.on_host = number(lowest * bound.count, 2.0 if bound.on_host is not None else 0.0, "")
        worth = sum(
            float(size) * rate for size, rate in zip(bound.region_weights, self.region, strict=True)
        )
        total = worth + sum(self.hub) + float(bound.count) * self.least + self.on_host
        self.solver.Add(total <= 2.0)  # no bound is above what is known
        self.solver.Maximize(total)

    def add(self, sets: list[_Set]) -> None:
        """``least``, or what the host takes, is no more than these sets let it be."""
        bound, solver = self.bound, self.solver
        for each in sets:
            case, nodes, cut = each
            here = nodes[bound.weight[nodes] > 0]
            taken = np.bincount(bound.region[here], bound.weight[here] / _ONE)
            row = solver.Constraint(-solver.infinity(), cut / bound.known)
            row.SetCoefficient(self.on_host if case == _HOST else self.least, 1.0)
            for number in np.flatnonzero(taken):
                row.SetCoefficient(self.region[number], float(taken[number]))
            for node in nodes:
                if int(node) in self.hub_number:
                    row.SetCoefficient(self.hub[self.hub_number[int(node)]], 1.0)
            if case > 0:
                row.SetCoefficient(self.rate[case - 1], 1.0 - float(taken.sum()))
            self.rows.append((each, row))

    def pruned(self) -> _Program:
        """The same with those sets only that some solution was bounded by."""
        program = _Program(self.bound)
        program.add([self.rows[number][0] for number in sorted(self.tight)])
        return program

    def solve(self) -> tuple[float, _Worths]:
        """Twice the most bytes that may still be proven, and the worths that would; nothing is to
        be gained where the program cannot be solved."""
        if self.solver.Solve() != pywraplp.Solver.OPTIMAL:
            return 0.0, self.bound.even(0.0)
        self.tight |= {n for n, (_, row) in enumerate(self.rows) if row.dual_value() != 0.0}
        known = self.bound.known
        values = [
            np.array([known * variable.solution_value() for variable in variables])
            for variables in (self.region, self.hub, self.rate)
        ]
        return known * self.solver.Objective().Value(), _Worths(*values)
