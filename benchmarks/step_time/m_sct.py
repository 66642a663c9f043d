"""m-SCT: list scheduling in which a device waits for the favourite child of its last op.

Importing this registers the solver ``m-sct``.  Favourite children, one successor of each op that
should follow it on the same device so that the dearest messages are not sent, are of a linear
program (B. Jeon et al., Baechi, SoCC 2020, section 3.3; C. Hanen, A. Munier,
An Approximation Algorithm for Scheduling Dependent Tasks on m Processors with Small Communication
Delays, Discrete Applied Mathematics 108, 2001, doi:10.1016/S0166-218X(00)00179-7).

Data: ops i with p[i] seconds; pairs (i, j), j reads from i, with c[i,j] seconds to send that.

Variables
    s[i]    >= 0        when op i begins
    x[i,j]  in [0, 1]   0: j is the favourite child of i
    w                   the makespan on as many devices as anyone likes

Minimise w, subject to
    (1) s[i] + p[i] + c[i,j] x[i,j] <= s[j]          for every pair
    (2) sum_j x[i,j] >= (children of i) - 1          for every op i: one favourite child
    (3) sum_i x[i,j] >= (parents of j) - 1           for every op j: favourite of one parent
    (4) s[i] + p[i] <= w                             for every op i

A child is the favourite where x < 1/2; by (2) and (3) no two can be.  GLOP solves it in a process
of its own, as OR-Tools does not go with TensorFlow.  Where there are more than :data:`MOST_PAIRS`
pairs, or GLOP gives up, a greedy rule takes its place: pairs by falling length of the longest path
through them, a child with no favourite parent yet for a parent with no favourite child yet.
"""

from __future__ import annotations

import heapq
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from placer.problem.placement_problem import PlacementProblem
from placer.processes import run_task
from placer.solving.baselines.list_scheduling import EarliestFirst
from placer.solving.baselines.tasks import Placement, Tasks, accelerators, mean_seconds
from placer.solving.solver import register_solver, solver_of

M_SCT = "m-sct"

MOST_PAIRS = 60_000
_LIMIT_SECONDS = 10.0
_IMPORTED_FROM = os.pathsep.join(map(str, Path(__file__).parents[::2][:2]))
"""This folder and the repository's."""

_FAVOURITE_BELOW = 0.5
_PARAMETERS = "use_dual_simplex: true max_deterministic_time: {work}"
_WORK = 20.0
"""In GLOP's deterministic seconds, so that a busy machine changes nothing."""

_HORIZON = 1_000.0
"""All seconds are scaled to this sum: GLOP's tolerances are absolute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precedence:
    """``seconds`` per op, in an order where parents come before their children; ``pairs`` of
    (parent, child), each once, with the ``sending`` seconds of the dearest message between them."""

    seconds: tuple[float, ...]
    pairs: tuple[tuple[int, int], ...]
    sending: tuple[float, ...]


Pairs = Sequence[tuple[int, int]]
SolveProgram = Callable[[Precedence], Pairs | None]
"""The pairs (parent, favourite child) of the linear program, or ``None`` without an optimum."""


def solve_in_child(precedence: Precedence) -> Pairs | None:
    """The linear program in a process of its own."""
    task, environment = f"{__name__}:find_favourites", {"PYTHONPATH": _IMPORTED_FROM}
    return cast(Pairs | None, run_task(task, precedence, _LIMIT_SECONDS, environment).answer)


def m_sct(problem: PlacementProblem, solve: SolveProgram = solve_in_child) -> Placement:
    """As m-ETF, but a device whose last op has its favourite child ready, and can begin it before
    the others can, is kept for that child; only what could begin anywhere by now may go first."""
    tasks = Tasks(problem)
    return _FavouriteFirst(tasks, favourite_children(tasks, solve)).run()


class _FavouriteFirst(EarliestFirst):
    def __init__(self, tasks: Tasks, favourite: Mapping[int, int]) -> None:
        super().__init__(tasks)
        self.favourite = favourite
        self.last: dict[int, int] = {}

    def place(self, op: int, device: int, begin: float) -> None:
        if not self.stand_back(op, device, begin):
            self.last[device] = op
            super().place(op, device, begin)

    def stand_back(self, op: int, device: int, begin: float) -> bool:
        """Whether ``device`` is kept for a favourite child; ``op`` is then looked at again when
        that begins, or when ``op`` could begin anywhere, after what begins then."""
        child = self.favourite.get(self.last.get(device, -1))
        if child is None or child == op or self.done[child] or self.waiting[child]:
            return False
        devices = self.room.choices(child)
        begins = {d: self.clock.start(child, d, self.room) for d in devices}
        if device not in begins or begins[device] > min(begins.values()):
            return False
        anywhere = max(self.clock.ready(op, d, self.room) for d in self.room.choices(op))
        if anywhere <= begin:
            return False
        heapq.heappush(self.heap, (begins[device], child, device))
        again = max(begin, min(anywhere, begins[device]))
        heapq.heappush(self.heap, (math.nextafter(again, math.inf), op, device))
        return True


def favourite_children(tasks: Tasks, solve: SolveProgram = solve_in_child) -> dict[int, int]:
    """Op -> its favourite child, for the ops that have one."""
    place = {op: position for position, op in enumerate(tasks.order)}
    precedence = _precedence(tasks, place)
    favourites = solve(precedence) if len(precedence.pairs) <= MOST_PAIRS else None
    if favourites is None:
        favourites = greedy_favourites(precedence)
    return {tasks.order[parent]: tasks.order[child] for parent, child in favourites}


def _precedence(tasks: Tasks, place: Mapping[int, int]) -> Precedence:
    """Times as means over the devices an op may use, and over the links between accelerators."""
    problem = tasks.problem
    devices = accelerators(problem)
    links = [(a, b) for a in devices for b in devices if a != b] or [(devices[0], devices[0])]
    sending: dict[tuple[int, int], float] = {}
    for number, message in enumerate(tasks.messages):
        seconds = sum(tasks.send_seconds(number, a, b) for a, b in links) / len(links)
        for child in message.consumers:
            pair = place[message.producer], place[child]
            sending[pair] = max(seconds, sending.get(pair, 0.0))
    return Precedence(
        seconds=tuple(mean_seconds(problem, op) for op in tasks.order),
        pairs=tuple(sending),
        sending=tuple(sending.values()),
    )


def greedy_favourites(precedence: Precedence) -> list[tuple[int, int]]:
    """Favourites by the greedy rule."""
    before, after = _path_lengths(precedence)
    length = [
        before[parent] + sending + after[child]
        for (parent, child), sending in zip(precedence.pairs, precedence.sending, strict=True)
    ]
    favourites: dict[int, int] = {}
    taken: set[int] = set()
    for number in sorted(range(len(length)), key=lambda number: -length[number]):
        parent, child = precedence.pairs[number]
        if parent not in favourites and child not in taken:
            favourites[parent] = child
            taken.add(child)
    return list(favourites.items())


def _path_lengths(precedence: Precedence) -> tuple[list[float], list[float]]:
    """Per op, the longest path that ends with it and the longest that begins with it."""
    before, after = list(precedence.seconds), list(precedence.seconds)
    edges = sorted(zip(precedence.pairs, precedence.sending, strict=True))
    for (parent, child), sending in edges:
        before[child] = max(before[child], before[parent] + sending + precedence.seconds[child])
    for (parent, child), sending in reversed(edges):
        after[parent] = max(after[parent], precedence.seconds[parent] + sending + after[child])
    return before, after


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
    from ortools.linear_solver import pywraplp

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


register_solver(M_SCT, solver_of(m_sct))
