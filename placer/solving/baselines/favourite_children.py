"""Favourite children: which successor should follow each op on the same device, so that the
dearest messages are not sent.

A linear program, as in m-SCT (B. Jeon et al., Baechi, SoCC 2020, section 3.3; C. Hanen, A. Munier,
An Approximation Algorithm for Scheduling Dependent Tasks on m Processors with Small Communication
Delays, Discrete Applied Mathematics 108, 2001, doi:10.1016/S0166-218X(00)00179-7), says which.

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

A child is the favourite where x < 1/2; by (2) and (3) no two can be.  GLOP solves it in the solver
process (:mod:`.favourite_program`).  Where there are more than :data:`MOST_PAIRS` pairs, or GLOP
gives up, a greedy rule takes its place: pairs by falling length of the longest path through them, a
child with no favourite parent yet for a parent with no favourite child yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from placer.solving.baselines.tasks import Tasks, accelerators, mean_seconds
from placer.solving.baselines.time_limits import seconds_left
from placer.solving.process.child_search import run_alone

MOST_PAIRS = 60_000
_LIMIT_SECONDS = 10.0
_TASK = "placer.solving.baselines.favourite_program:find_favourites"


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
    """The linear program in the solver process."""
    seconds = max(0.0, min(_LIMIT_SECONDS, seconds_left()))
    return cast(Pairs | None, run_alone(_TASK, precedence, seconds).answer)


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
        for child in tasks.consumers(number):
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
