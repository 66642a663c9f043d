"""The linear program of :mod:`.favourite_children`, solved by GLOP; for the solver process."""

from __future__ import annotations

from ortools.linear_solver import pywraplp

from placer.solving.baselines.favourite_children import Precedence

_FAVOURITE_BELOW = 0.5
_PARAMETERS = "use_dual_simplex: true max_deterministic_time: {work}"
_WORK = 20.0
"""In GLOP's deterministic seconds, so that a busy machine changes nothing."""

_HORIZON = 1_000.0
"""All seconds are scaled to this sum: GLOP's tolerances are absolute."""


def find_favourites(precedence: Precedence, _send: object) -> list[tuple[int, int]] | None:
    """As :func:`solve_favourites`, as a task of the solver process."""
    return solve_favourites(precedence)


def solve_favourites(precedence: Precedence) -> list[tuple[int, int]] | None:
    """Pairs (parent, favourite child), or ``None`` if GLOP gives up."""
    found = solve_program(precedence)
    if found is None:
        return None
    apart, _ = found
    return [pair for pair, x in zip(precedence.pairs, apart, strict=True) if x < _FAVOURITE_BELOW]


def solve_program(precedence: Precedence) -> tuple[list[float], float] | None:
    """The x of each pair and the least makespan in seconds, under constraints (1) to (4)."""
    solver = pywraplp.Solver.CreateSolver("GLOP")
    solver.SetSolverSpecificParametersAsString(_PARAMETERS.format(work=_WORK))
    infinity = solver.infinity()
    unit = (sum(precedence.seconds) + sum(precedence.sending) or 1.0) / _HORIZON
    ops = range(len(precedence.seconds))
    children, parents = [0 for _ in ops], [0 for _ in ops]
    for parent, child in precedence.pairs:
        children[parent] += 1
        parents[child] += 1
    start = [solver.NumVar(0.0, infinity, "") for _ in ops]
    apart = [solver.NumVar(0.0, 1.0, "") for _ in precedence.pairs]
    makespan = solver.NumVar(0.0, infinity, "")
    one_child = [solver.Constraint(count - 1.0, infinity) for count in children]  # (2)
    one_parent = [solver.Constraint(count - 1.0, infinity) for count in parents]  # (3)
    for (parent, child), sending, x in zip(
        precedence.pairs, precedence.sending, apart, strict=True
    ):
        follows = solver.Constraint(precedence.seconds[parent] / unit, infinity)  # (1)
        follows.SetCoefficient(start[child], 1.0)
        follows.SetCoefficient(start[parent], -1.0)
        follows.SetCoefficient(x, -sending / unit)
        one_child[parent].SetCoefficient(x, 1.0)
        one_parent[child].SetCoefficient(x, 1.0)
    for op in ops:
        ends = solver.Constraint(precedence.seconds[op] / unit, infinity)  # (4)
        ends.SetCoefficient(makespan, 1.0)
        ends.SetCoefficient(start[op], -1.0)
    solver.Objective().SetCoefficient(makespan, 1.0)
    solver.Objective().SetMinimization()
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return None
    return [x.solution_value() for x in apart], float(solver.Objective().Value()) * unit
