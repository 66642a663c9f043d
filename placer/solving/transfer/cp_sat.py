"""The placement problem as a CP-SAT model.

Data
    U       units, A[u] the devices that unit u may use
    N       nets, each with a producer p, consumers C and b bytes
    R       rows, each with a weight w[u] per unit and a capacity q[d] per device
    c[u,d]  what unit u costs on device d

Variables
    x[u,d]  in {0, 1}: unit u is on device d           (d in A[u])
    z[n,d]  in {0, 1}: net n is sent to device d       (d in A[c] for some consumer c of n)

Minimise
    sum b[n] z[n,d]  +  sum c[u,d] x[u,d]

Subject to
    (1) sum_d x[u,d] = 1                                for every unit u
    (2) z[n,d] or x[p,d] or not x[c,d]                  for every net n, consumer c, device d
    (3) sum_u w[u] x[u,d] <= q[d]                       for every row and device d
    (4) x[u_i,d_j] = 0 for j > i                        for interchangeable devices d_0 ... d_k
                                                        and leading units u_0 ... u_k-1

A variable z that says "sent to d" (and not "some pin is on d") is what gives the linear
relaxation a bound: z is at least x[c,d] - x[p,d].

Sums stay within int64: where they would not, costs are divided and rounded down (their bound
remains a bound), weights divided and rounded up and capacities down (then infeasibility and
bounds prove nothing, and ``is_exact`` is false).

(4) is sound: number the interchangeable devices by their first appearance in the sequence
u_0, u_1, ...; then u_i is on one of the first i + 1.  Hints are renumbered in the same way.
Leaders that a good placement has on different devices, with much to send and read, raise the bound
soonest; where none is known they are the heaviest units.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from ortools.sat.python import cp_model

from placer.solving.reduction.equal_devices import interchangeable_devices, numbered_by_use
from placer.solving.reduction.unit_problem import UnitProblem

SAFE_SUM = 2**60
"""Sums of coefficients stay below this."""

Literal: TypeAlias = Any
"""A Boolean variable, its negation, or ``True``."""


class UnitModel:
    """The constraints of all models of a unit problem: (1), (3), (4), with ``x[unit][device]`` in
    ``x``.

    ``classes`` are the interchangeable devices, ``leaders`` their leading units.
    """

    def __init__(
        self, problem: UnitProblem, classes: list[list[int]], leaders: list[list[int]]
    ) -> None:
        self.model = cp_model.CpModel()
        self.is_exact = True
        self.rows = problem.rows
        self.classes, self.leaders = classes, leaders
        self.x = [self._choice(unit, devices) for unit, devices in enumerate(problem.allowed)]
        self._keep_rows()
        self._break_symmetry()

    def _choice(self, unit: int, devices: Sequence[int]) -> dict[int, Literal]:
        """(1)."""
        if len(devices) == 1:
            return {devices[0]: True}
        if len(devices) == 2:
            first = self.model.new_bool_var(f"x{unit}_{devices[0]}")
            return {devices[0]: first, devices[1]: first.Not()}
        row = {device: self.model.new_bool_var(f"x{unit}_{device}") for device in devices}
        self.model.add_exactly_one(row.values())
        return row

    def _keep_rows(self) -> None:
        """(3)."""
        for row in self.rows:
            divisor = divisor_for(sum(row.weights))
            self.is_exact = self.is_exact and divisor == 1
            weights = [-(-weight // divisor) for weight in row.weights]
            for device, capacity in enumerate(row.capacity):
                self._keep_capacity(weights, device, capacity // divisor)

    def _keep_capacity(self, weights: Sequence[int], device: int, capacity: int) -> None:
        chosen = [
            (w, row[device]) for w, row in zip(weights, self.x, strict=True) if w and device in row
        ]
        left = capacity - sum(weight for weight, x in chosen if x is True)
        free = [(weight, x) for weight, x in chosen if x is not True]
        if sum(weight for weight, _ in free) > left:
            terms = [weight * x for weight, x in free]
            self.model.add(cp_model.LinearExpr.sum([*terms, 0]) <= left)
        elif left < 0:
            self.model.add_bool_or([])

    def _break_symmetry(self) -> None:
        """(4)."""
        for devices, leaders in zip(self.classes, self.leaders, strict=True):
            for place, unit in enumerate(leaders):
                for device in devices[place + 1 :]:
                    self.model.add_bool_and([self.x[unit][device].Not()])

    def hint_units(self, device_of: Sequence[int]) -> tuple[int, ...]:
        """Start at a placement, under the names for devices that (4) allows, which are returned."""
        renamed = numbered_by_use(self.classes, device_of, self.leaders)
        for unit, row in enumerate(self.x):
            for device, variable in row.items():
                if isinstance(variable, cp_model.IntVar):
                    self.model.add_hint(variable, renamed[unit] == device)
        return renamed

    def device_of(self, solution: cp_model.CpSolverSolutionCallback) -> list[int]:
        """The placement of the units in a solution."""
        return [
            next(device for device, x in row.items() if x is True or solution.boolean_value(x))
            for row in self.x
        ]


class PlacementModel(UnitModel):
    """The model of one reduced problem, with a placement of its units to start at; ``device_of``
    reads a placement out of a solution."""

    def __init__(self, problem: UnitProblem, hint: Sequence[int] | None = None) -> None:
        classes = interchangeable_devices(problem)
        size = _weight(problem) if hint is None else _incident_bytes(problem)
        leaders = [leading_units(problem, devices, size, hint) for devices in classes]
        super().__init__(problem, classes, leaders)
        self.problem = problem
        self.cost_divisor = divisor_for(
            sum(net.bytes for net in problem.nets) * problem.device_count
            + sum(map(max, problem.cost))
        )
        self.z: dict[tuple[int, int], cp_model.IntVar] = {}
        self._send_where_read()
        self._minimise()
        if hint is not None:
            self._start_at(hint)

    def _send_where_read(self) -> None:
        """(2)."""
        for number, net in enumerate(self.problem.nets):
            home = self.x[net.producer]
            for device in sorted({d for c in net.consumers for d in self.x[c]}):
                if home.get(device) is True:
                    continue
                sent = self.model.new_bool_var(f"z{number}_{device}")
                self.z[number, device] = sent
                for consumer in net.consumers:
                    if device in self.x[consumer]:
                        self._add_sent_clause(sent, home.get(device), self.x[consumer][device])

    def _add_sent_clause(
        self, sent: cp_model.IntVar, produced: Literal | None, read: Literal
    ) -> None:
        clause = [sent]
        if produced is not None:
            clause.append(produced)
        if read is not True:
            clause.append(read.Not())
        self.model.add_bool_or(clause)

    def _minimise(self) -> None:
        divisor = self.cost_divisor
        terms = [self.problem.nets[n].bytes // divisor * sent for (n, _), sent in self.z.items()]
        terms += [
            costs[device] // divisor * x
            for costs, row in zip(self.problem.cost, self.x, strict=True)
            for device, x in row.items()
            if costs[device]
        ]
        self.model.minimize(cp_model.LinearExpr.sum([*terms, 0]))

    def lower_bound(self, objective_bound: float) -> int | None:
        """A bound in bytes from the solver's bound on the objective; ``None`` if it proves
        nothing.  Costs are whole bytes, so a bound of 7.2 means 8; beyond 2**53, where a float
        has no units, it is rounded down."""
        if not self.is_exact:
            return None
        slack = 1e-6 if objective_bound < 2**40 else objective_bound * 2.0**-52
        return max(0, math.ceil(objective_bound - slack)) * self.cost_divisor

    def _start_at(self, device_of: Sequence[int]) -> None:
        device_of = self.hint_units(device_of)
        for (number, device), sent in self.z.items():
            net = self.problem.nets[number]
            is_read = any(device_of[unit] == device for unit in net.consumers)
            self.model.add_hint(sent, is_read and device_of[net.producer] != device)


def divisor_for(total: int) -> int:
    """The least power of two that brings ``total`` under :data:`SAFE_SUM`."""
    divisor = 1
    while total // divisor >= SAFE_SUM:
        divisor *= 2
    return divisor


def leading_units(
    problem: UnitProblem,
    devices: Sequence[int],
    size: Sequence[float],
    known: Sequence[int] | None = None,
) -> list[int]:
    """The units of largest ``size`` that may use a class of devices, one fewer than devices: first
    those on each device of the placement ``known``."""
    units = [u for u, allowed in enumerate(problem.allowed) if devices[0] in allowed]
    units.sort(key=lambda unit: -size[unit])
    if known is not None:
        first = {known[unit]: unit for unit in reversed(units) if known[unit] in devices}
        units = [*sorted(first.values(), key=lambda unit: -size[unit]), *units]
    return list(dict.fromkeys(units))[: len(devices) - 1]


def _weight(problem: UnitProblem) -> list[int]:
    """Per unit, its bytes in all rows."""
    return [sum(row.weights[u] for row in problem.rows) for u in range(problem.unit_count)]


def _incident_bytes(problem: UnitProblem) -> list[int]:
    """Per unit, the bytes of the nets that it sends or reads."""
    size = [0] * problem.unit_count
    for net in problem.nets:
        for unit in (net.producer, *net.consumers):
            size[unit] += net.bytes
    return size
