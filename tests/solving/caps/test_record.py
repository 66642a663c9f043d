"""What is kept of what is found, and which bound holds for it."""

from __future__ import annotations

from collections.abc import Sequence

from small_problems import problem_of

from placer.problem.device_peaks import DevicePeak
from placer.solving.caps.predictions import Predictions
from placer.solving.caps.record import PeakRequest, Record
from placer.solving.solution import Solution, SolverParameters, Status

PROBLEM = problem_of(resident=[1, 1, 1], tensors=[(0, [1], 5), (1, [2], 3)], capacity=[9, 9])
TOGETHER, CHEAP, DEAR = (0, 0, 0), (0, 0, 1), (0, 1, 0)


def _found(above: dict[tuple[int, ...], int]) -> Record:
    """A record to which placements are so much above the cap of the first device."""

    def find_peaks(device_of: Sequence[int]) -> list[DevicePeak]:
        over = above.get(tuple(device_of), 0)
        return [DevicePeak(peak_bytes=9 + over, moment={}), DevicePeak(peak_bytes=9, moment={})]

    predict = Predictions(find_peaks, PROBLEM.capacity_bytes)
    return Record(PeakRequest(problem=PROBLEM, predict=predict, parameters=SolverParameters()))


def _take(found: Record, *placements: tuple[int, ...]) -> None:
    for device_of in placements:
        found.take(Solution(status=Status.FEASIBLE, device_of=device_of), is_tidy=True)


def test_the_highest_bound_holds() -> None:
    """All bounds are about the same problem; one that is reached proves the placement."""
    found = _found({})
    for bound in (2.0, 3.0, None):
        found.raise_bound(bound)
    _take(found, DEAR)
    answer = found.answer(1.0)
    assert (answer.status, answer.value, answer.lower_bound) == (Status.FEASIBLE, 8.0, 3.0)
    assert not found.is_settled
    _take(found, CHEAP)
    answer = found.answer(1.0)
    assert (answer.status, answer.value, answer.lower_bound) == (Status.OPTIMAL, 3.0, 3.0)
    assert found.is_settled


def test_nothing_is_less_than_nothing() -> None:
    """What costs nothing needs no search for a bound."""
    found = _found({})
    _take(found, TOGETHER)
    answer = found.answer(1.0)
    assert (answer.status, answer.lower_bound) == (Status.OPTIMAL, 0.0)


def test_of_what_is_above_a_cap_the_nearest_is_kept_if_it_costs_less() -> None:
    """Beside the best that fits; what costs as much as that is of no use."""
    found = _found({TOGETHER: 4, CHEAP: 2, DEAR: 1})
    _take(found, TOGETHER, CHEAP)
    assert (found.nearest.device_of, found.best) == (CHEAP, None)
    found.raise_bound(4.0)  # of placements that fit: the nearest costs 3
    assert (found.answer(1.0).value, found.answer(1.0).lower_bound) == (3.0, None)
    _take(found, (1, 0, 0))  # which costs 5 and fits
    assert (found.nearest.device_of, found.value) == (CHEAP, 5.0)
    _take(found, DEAR)
    assert found.nearest.device_of == CHEAP
    _take(found, (1, 1, 0))  # as much as the nearest, and fits: what is more above costs less
    assert (found.nearest.device_of, found.value) == (TOGETHER, 3.0)
