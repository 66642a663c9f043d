"""Exact reductions: units that some optimal placement keeps together become one unit.

Every rule keeps at least one optimal placement, and every placement of the smaller problem
expands to one of the larger at the same cost, so bounds and infeasibility carry over.

1. *Pinned.*  Units that may use one and the same device only are on it in every placement.
2. *After its producer.*  Let u weigh nothing in any row, let u be the only consumer of a net of b
   bytes from p, and let u be allowed wherever p is.  Moving u from any device to p's saves b
   (nobody else reads the net there), costs at most the bytes of each other net into u (read on a
   new device), at most the bytes of each net out of u (read where u was; counted once), and what u
   itself costs there beyond the least that it costs anywhere.  If b is at least their sum, moving
   never hurts: u joins p.
3. *Before its consumer.*  Let u weigh nothing, as above, and be allowed wherever v is.  Moving u
   to v's device never raises what a net out of u and into v costs (v reads it there for free), and
   saves all bytes of those read by v alone.  It costs at most the bytes of the nets into u and
   of the nets out of u that v does not read, and what u itself costs more.  If the saving covers
   that, u joins v.
4. *Dearer than the incumbent.*  If the nets from u to v and from v to u have more bytes than a
   known placement costs altogether, no better placement separates u and v.

Rules 2 and 3 are applied to many units in one sweep.  That is sound as long as no unit that
received another one joins a third in the same sweep: what happened elsewhere only merges
consumers, drops nets and narrows allowed sets of the receiving side, all of which keep the
conditions true.
"""

from collections.abc import Iterator

from placer.graph.union_find import UnionFind
from placer.problem.placement_problem import ProblemTensor
from placer.solving.reduction.unit_problem import UnitProblem, merge_units


def contract(problem: UnitProblem, incumbent_value: int | None = None) -> UnitProblem:
    """The smallest problem that the rules reach.

    ``incumbent_value`` is the cost of a known placement of ``problem``; then only placements that
    are no worse than it survive for certain.
    """
    while True:
        sweep = _Sweep(problem)
        sweep.join_pinned()
        if incumbent_value is not None:
            sweep.join_inseparable(incumbent_value)
        sweep.join_weightless()
        if not sweep.joined:
            return problem
        roots = [sweep.sets.root(unit) for unit in range(problem.unit_count)]
        problem = merge_units(problem, roots)


class _Sweep:
    """One pass of the rules over an unchanged problem; ``sets`` collects who joins whom."""

    def __init__(self, problem: UnitProblem) -> None:
        self.problem = problem
        self.allowed = [frozenset(devices) for devices in problem.allowed]
        self.sets = UnionFind[int]()
        self.received = [False] * problem.unit_count
        self.joined = False
        self.out_of: list[list[ProblemTensor]] = [[] for _ in problem.allowed]
        self.into: list[list[ProblemTensor]] = [[] for _ in problem.allowed]
        for net in problem.nets:
            self.out_of[net.producer].append(net)
            for unit in net.consumers:
                self.into[unit].append(net)

    def join(self, unit: int, target: int) -> None:
        unit, target = self.sets.root(unit), self.sets.root(target)
        if unit == target:
            return
        self.sets.union(target, unit)
        self.received[target] = True
        self.allowed[target] &= self.allowed[unit]
        self.joined = True

    def join_pinned(self) -> None:
        """Rule 1."""
        first: dict[frozenset[int], int] = {}
        for unit, devices in enumerate(self.allowed):
            if len(devices) == 1:
                self.join(unit, first.setdefault(devices, unit))

    def join_inseparable(self, incumbent_value: int) -> None:
        """Rule 4."""
        between: dict[tuple[int, int], int] = {}
        for net in self.problem.nets:
            for consumer in net.consumers:
                pair = (min(net.producer, consumer), max(net.producer, consumer))
                between[pair] = between.get(pair, 0) + net.bytes
        for (unit, other), size in between.items():
            if (
                size > incumbent_value
                and self.allowed[self.sets.root(unit)] & self.allowed[self.sets.root(other)]
            ):
                self.join(unit, other)

    def join_weightless(self) -> None:
        """Rules 2 and 3."""
        weighed = {
            unit for row in self.problem.rows for unit, weight in enumerate(row.weights) if weight
        }
        for unit in range(self.problem.unit_count):
            if unit in weighed or self.received[unit] or self.sets.root(unit) != unit:
                continue
            target = next(self._targets(unit), None)
            if target is not None:
                self.join(unit, target)

    def _targets(self, unit: int) -> Iterator[int]:
        """Units that ``unit`` may join."""
        into, out_of = self.into[unit], self.out_of[unit]
        bytes_in = sum(net.bytes for net in into)
        bytes_out = sum(net.bytes for net in out_of)
        for net in into:
            alone, spare = net.consumers == (unit,), 2 * net.bytes - bytes_in - bytes_out
            if alone and spare >= 0 and self._may(unit, net.producer, spare):
                yield net.producer
        for consumer in dict.fromkeys(v for net in out_of for v in net.consumers):
            saved = sum(net.bytes for net in out_of if net.consumers == (consumer,))
            missed = sum(net.bytes for net in out_of if consumer not in net.consumers)
            spare = saved - bytes_in - missed
            if spare >= 0 and self._may(unit, consumer, spare):
                yield consumer

    def _may(self, unit: int, target: int, spare: int) -> bool:
        """Whether ``unit`` is allowed wherever ``target`` is, costs at most ``spare`` more there
        than at its cheapest, and has not become part of it."""
        root = self.sets.root(target)
        if root == unit or not self.allowed[root] <= self.allowed[unit]:
            return False
        costs = self.problem.cost[unit]
        if not any(costs):
            return True
        dearest = max((costs[device] for device in self.allowed[root]), default=0)
        return dearest - min(costs[device] for device in self.allowed[unit]) <= spare
