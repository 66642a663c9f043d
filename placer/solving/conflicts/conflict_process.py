"""The smallest conflict where a bounded search leaves packings open: those by CP-SAT."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from placer.problem.placement_problem import PlacementProblem
from placer.solving.conflicts.conflict import checker
from placer.solving.conflicts.elements import Elements, Packing
from placer.solving.conflicts.packing import UndecidedError, pack
from placer.solving.conflicts.smallest_conflict import Conflict, smallest_conflict
from placer.solving.process.cp_sat_run import cp_sat_solver
from placer.solving.process.search_run import Effort
from placer.solving.reduction.unit_problem import Row, UnitProblem
from placer.solving.transfer.cp_sat import PlacementModel

_PACKING_SECONDS = 2.0
"""Of CP-SAT on one set of elements; what it does not decide counts as needed."""


def find_conflict(request: tuple[PlacementProblem, float], _send: object) -> Conflict | None:
    """The smallest conflict of an infeasible problem found until a time of ``time.time()``."""
    problem, until = request

    def pack(packing: Packing) -> Any:
        deadline = min(until, time.time() + _PACKING_SECONDS)
        return pack_by_cp_sat(packing, cp_sat_solver(Effort(deadline=deadline)))

    elements = Elements(problem)
    deadline = time.monotonic() + until - time.time()
    return smallest_conflict(len(elements.all), checker(elements, pack), deadline)


def pack_by_cp_sat(packing: Packing, solver: cp_model.CpSolver) -> Any:
    """As :func:`placer.solving.conflicts.packing.pack`, with CP-SAT where that does not know."""
    try:
        return pack(packing)
    except UndecidedError:
        pass
    roomy = packing.allowed & ~packing.capped
    device_of = roomy.argmax(axis=1)
    units = np.flatnonzero(~roomy.any(axis=1))
    model = PlacementModel(_confined(packing, units))
    status = solver.solve(model.model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        device_of[units] = model.device_of(solver)
        return device_of
    if status == cp_model.INFEASIBLE and model.is_exact:
        return None
    raise UndecidedError


def _confined(packing: Packing, units: Any) -> UnitProblem:
    """The units that need room on devices with caps, as a problem without any transfer."""
    capacity = tuple(int(size) for size in packing.capacity)
    return UnitProblem(
        device_count=len(capacity),
        host=0,
        allowed=tuple(
            tuple(int(device) for device in np.flatnonzero(packing.allowed[unit])) for unit in units
        ),
        nets=(),
        rows=tuple(
            Row(weights=tuple(int(weight) for weight in row[units]), capacity=capacity)
            for row in packing.weights
        ),
        host_cost=(0,) * len(units),
        unit_of=tuple(range(len(units))),
        anchor=tuple(range(len(units))),
    )
