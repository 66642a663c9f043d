"""When it is plain that nothing fits."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from small_problems import problem_of, random_problem

from placer.prediction.scoring import score
from placer.solving.process import clock
from placer.solving.reduction.unit_problem import reduce_to_units
from placer.solving.solution import SolverParameters, Status
from placer.solving.transfer import solving
from placer.solving.transfer.solving import cannot_fit, solve_units


@pytest.mark.parametrize(("least", "fits"), [(12, False), (6, True)])
def test_units_of_which_no_two_share_a_device_leave_no_room(least: int, fits: bool) -> None:
    """Sums of gradients, one to a device, and a table that fits beside none of them: all together
    is less than the devices hold."""
    problem = problem_of(
        resident=[94] * 8 + [least, 1, 1],
        tensors=[],
        capacity=[100] * 8 + [0],
        allowed=[list(range(8))] * 11,
    )
    assert cannot_fit(reduce_to_units(problem)) is not fits


def test_without_rows_nothing_but_a_unit_without_a_device_cannot_fit() -> None:
    units = replace(
        reduce_to_units(problem_of(resident=[1, 1], tensors=[], capacity=[1, 1])), rows=()
    )
    assert not cannot_fit(units)
    assert cannot_fit(replace(units, allowed=((0,), ())))


def test_what_fits_is_never_said_not_to() -> None:
    plain = 0
    for seed in range(200):
        problem = random_problem(seed, most_ops=6)
        units = reduce_to_units(problem)
        if cannot_fit(units):
            plain += 1
            assert all(
                score(problem, device_of).violations
                for device_of in itertools.product(*problem.allowed)
                if all(
                    device_of[a] == device_of[b]
                    for a, b in itertools.combinations(range(len(device_of)), 2)
                    if problem.group[a] == problem.group[b]
                )
            )
    assert plain > 5


def test_searches_begin_where_units_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hint that has an op where it may not be (another round left it free) sends least of all;
    what is found keeps to what is allowed."""
    tensors = [(op, [op + 1], 10) for op in range(5)]
    problem = problem_of(
        resident=[1] * 6,
        tensors=tensors,
        capacity=[4, 4, 0],
        allowed=[[0, 1], [0, 1], [1], [0, 1], [0, 1], [0, 1]],
    )
    units = reduce_to_units(problem)
    hint = [0, 0, 0, 1, 1, 1]
    begun = []
    search = solving.search_in_child

    def watched(task, units_searched, starts, *rest):
        begun.extend((units_searched, start) for start in starts)
        return search(task, units_searched, starts, *rest)

    monkeypatch.setattr(solving, "search_in_child", watched)
    found = solve_units(units, SolverParameters(), clock.monotonic() + 10.0, [hint])
    assert found.status is Status.OPTIMAL
    assert found.value == 10
    assert len(begun) >= 2
    for searched, start in begun:
        allowed = zip(start, searched.allowed, strict=True)
        assert all(device in devices for device, devices in allowed)
