"""Which bound holds for which placement."""

from __future__ import annotations

from dataclasses import replace

from small_problems import problem_of

from placer.solving.caps.proofs import Proofs
from placer.solving.solution import Solution, Status
from placer.solving.transfer.spilling import UNPROVEN_LEAST

PROBLEM = problem_of(resident=[1, 1], tensors=[(0, [1], 5)], capacity=[9, 9])
FOUND = Solution(status=Status.FEASIBLE, device_of=(0, 1), value=5.0)


def _proofs(*bounds: tuple[int, float]) -> Proofs:
    """With a bound for each spill allowance."""
    proofs = Proofs(PROBLEM)
    proofs.solutions += [
        replace(FOUND, spill_allowance_bytes=allowance, lower_bound=bound)
        for allowance, bound in bounds
    ]
    return proofs


def test_a_bound_holds_for_its_spill_allowance_and_any_lower_one() -> None:
    """What spills 3 bytes may be anything that keeps to an allowance of 4: a bound of what spills
    nothing says nothing about it."""
    proofs = _proofs((0, 5.0), (4, 3.0), (9, 1.0))
    none, some, more = (proofs.proven(replace(FOUND, spilled_bytes=size)) for size in (0, 3, 8))
    assert (none.status, none.lower_bound) == (Status.OPTIMAL, 5.0)
    assert (some.status, some.lower_bound) == (Status.FEASIBLE, 3.0)
    assert some.spill_allowance_bytes == 4
    assert (more.status, more.lower_bound) == (Status.FEASIBLE, 1.0)
    assert proofs.least_bytes() == 1.0


def test_where_no_allowance_was_tried_that_is_said() -> None:
    """And no bound is claimed."""
    found = _proofs((0, 5.0)).proven(replace(FOUND, spilled_bytes=3))
    assert found.lower_bound is None
    assert UNPROVEN_LEAST in found.warnings


def test_nothing_is_less_than_nothing() -> None:
    """What transfers no bytes and spills none needs no search for a bound."""
    found = _proofs().proven(replace(FOUND, value=0.0))
    assert (found.status, found.lower_bound) == (Status.OPTIMAL, 0.0)
