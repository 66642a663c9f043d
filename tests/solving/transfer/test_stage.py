"""When it is plain that nothing fits."""

from __future__ import annotations

import itertools

import pytest
from small_problems import problem_of, random_problem

from placer.prediction.scoring import score
from placer.solving.reduction.unit_problem import reduce_to_units
from placer.solving.transfer.stage import cannot_fit


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
