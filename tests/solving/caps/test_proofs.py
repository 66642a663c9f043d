"""Which bound holds for which placement."""

from __future__ import annotations

from dataclasses import replace

from small_problems import problem_of

from placer.solving.caps.proofs import Proofs
from placer.solving.solution import Solution, Status

PROBLEM = problem_of(resident=[1, 1], tensors=[(0, [1], 5)], capacity=[9, 9])
FOUND = Solution(status=Status.FEASIBLE, device_of=(0, 1), value=5.0)


def _proofs(*bounds: float | None) -> Proofs:
    proofs = Proofs(PROBLEM)
    proofs.solutions += [replace(FOUND, lower_bound=bound) for bound in bounds]
    return proofs


def test_the_highest_bound_holds() -> None:
    """All bounds are about the same problem; one that is reached proves the placement."""
    proofs = _proofs(3.0, 5.0, None)
    best, worse = (proofs.proven(replace(FOUND, value=value)) for value in (5.0, 6.0))
    assert (best.status, best.lower_bound) == (Status.OPTIMAL, 5.0)
    assert (worse.status, worse.lower_bound) == (Status.FEASIBLE, 5.0)
    assert proofs.least_bytes() == 5.0


def test_nothing_is_less_than_nothing() -> None:
    """What costs nothing needs no search for a bound."""
    found = _proofs().proven(replace(FOUND, value=0.0))
    assert (found.status, found.lower_bound) == (Status.OPTIMAL, 0.0)
