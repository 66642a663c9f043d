"""The named baselines: each does what its source says, and keeps the caps or says why not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_problems import problem_of, random_problem

from placer.prediction.scoring import score
from placer.problem.placement_problem import PlacementProblem
from placer.solving.baselines import BASELINES, DoesNotFitError
from placer.solving.baselines.list_scheduling import heft_schedule, upward_ranks
from placer.solving.baselines.tasks import Tasks
from placer.solving.solution import Status
from placer.solving.solver import solve

# The example of Topcuoglu, Hariri and Wu (2002), figure 1: ten tasks on three processors.
TIMES = [
    (14, 16, 9),
    (13, 19, 18),
    (11, 13, 19),
    (13, 8, 17),
    (12, 13, 10),
    (13, 16, 9),
    (7, 15, 11),
    (5, 11, 14),
    (18, 12, 20),
    (21, 7, 16),
]
MESSAGES = {
    (1, 2): 18,
    (1, 3): 12,
    (1, 4): 9,
    (1, 5): 11,
    (1, 6): 14,
    (2, 8): 19,
    (2, 9): 16,
    (3, 7): 23,
    (4, 8): 27,
    (4, 9): 23,
    (5, 9): 13,
    (6, 8): 15,
    (7, 10): 17,
    (8, 10): 11,
    (9, 10): 13,
}
RANKS = [108.0, 77.0, 80.0, 80.0, 69.0, 63.333, 42.667, 35.667, 44.333, 14.667]


def published_example() -> PlacementProblem:
    problem = problem_of(
        resident=[0] * 10,
        tensors=[(a - 1, [b - 1], size) for (a, b), size in MESSAGES.items()],
        capacity=[1, 1, 1],
    )
    return replace(
        problem,
        device_names=("GPU:0", "GPU:1", "GPU:2"),
        objective="step-time",
        seconds=tuple(tuple(map(float, row)) for row in TIMES),
        bandwidth=((1.0,) * 3,) * 3,
    )


def test_upward_ranks_are_the_published_ones() -> None:
    ranks = upward_ranks(Tasks(published_example()))
    assert ranks == pytest.approx(RANKS, abs=1e-3)


def test_heft_reaches_the_published_schedule_length() -> None:
    assert heft_schedule(published_example())[1] == pytest.approx(80.0)


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_a_baseline_keeps_all_limits_or_says_that_it_does_not_fit(
    name: str,
) -> None:
    """On random problems with caps, groups and pins; TensorFlow's default knows no caps."""
    placed = 0
    for seed in range(150):
        problem = random_problem(seed, spill="auto" if seed % 2 else "never")
        problem = replace(problem, tables=tuple(range(0, len(problem.op_names), 2)))
        try:
            device_of = BASELINES[name](problem)
        except DoesNotFitError:
            continue
        placed += 1
        violations = score(problem, device_of).violations
        if name == "tensorflow-default":
            violations = tuple(text for text in violations if "above its capacity" not in text)
        assert not violations, (seed, violations)
    assert placed > 20


def chain(count: int, capacity: int) -> PlacementProblem:
    return problem_of(
        resident=[1] * count,
        tensors=[(op, [op + 1], 8 if op % 2 == 0 else 1) for op in range(count - 1)],
        capacity=[capacity, capacity, 100],
        allowed=[[0, 1]] * count,
    )


def test_first_fit_fills_the_first_device_and_never_goes_back() -> None:
    assert BASELINES["first-fit"](chain(6, 5)) == (0, 0, 0, 0, 0, 1)


def test_balanced_halves_the_chain_and_contiguous_cuts_where_little_crosses() -> None:
    assert BASELINES["m-topo"](chain(8, 7)) == (0, 0, 0, 0, 0, 1, 1, 1)
    assert BASELINES["contiguous"](chain(6, 5)) in {(0, 0, 0, 0, 1, 1), (0, 0, 1, 1, 1, 1)}


def test_variables_go_round_and_the_rest_stays_on_the_first_device() -> None:
    problem = problem_of(
        resident=[3, 0, 3, 0],
        tensors=[(0, [1], 1), (2, [3], 1), (1, [3], 1)],
        capacity=[9, 9, 99],
        allowed=[[0, 1]] * 4,
    )
    assert BASELINES["round-robin-variables"](problem) == (0, 0, 1, 0)


def test_a_baseline_that_does_not_fit_is_unknown_with_the_reason() -> None:
    """Under the solver's interface: no traceback, a warning that names the op."""
    solution = solve(chain(6, 2), solver="one-device")
    assert solution.status is Status.UNKNOWN
    assert solution.device_of is None
    assert "no single accelerator holds" in solution.warnings[0][1]


def test_what_is_on_a_device_beside_the_ops_is_told() -> None:
    """No placement moves it, and it alone is above the limit."""
    told = r"GPU:1 holds 8 B beside the placed ops .*, and its limit is 7 B"
    with pytest.raises(DoesNotFitError, match=told):
        BASELINES["balanced"](replace(chain(6, 7), transient_bytes=(0, 8, 0)))


def recommender(*, gpu: int) -> PlacementProblem:
    """Three tables (40, 10 and 20 bytes), each with its lookup, and two dense ops of 3 bytes; two
    accelerators, a host."""
    problem = problem_of(
        resident=[40, 10, 20, 0, 0, 0, 3, 3],
        tensors=[(3, [6], 1), (4, [6], 1), (5, [6], 1), (6, [7], 1)],
        capacity=[gpu, gpu, 99],
        group=[0, 1, 2, 0, 1, 2, 6, 7],
        allowed=[[0, 1]] * 8,
        spillable=[True] * 8,
        spill="auto",
    )
    return replace(problem, tables=(0, 1, 2))


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        (50, (0, 1, 1, 0, 1, 1, 0, 0)),  # the largest first, then where less is
        (26, (2, 1, 0, 2, 1, 0, 0, 0)),  # 40 is too much
        (21, (2, 1, 0, 2, 1, 0, 1, 1)),
        (16, (2, 0, 2, 2, 0, 2, 0, 0)),  # the smallest stays, beside what is no table
        (8, (2, 2, 2, 2, 2, 2, 0, 0)),
    ],
)
def test_the_smallest_tables_are_on_accelerators_up_to_the_threshold_that_fits(
    gpu: int, expected: tuple[int, ...]
) -> None:
    problem = recommender(gpu=gpu)
    device_of = BASELINES["smallest-tables"](problem)
    assert device_of == expected
    assert not score(problem, device_of).violations


def test_a_full_host_asks_for_more_tables_on_accelerators() -> None:
    """Of eight tables of 10 bytes five fit the accelerators (20 and 30), and four the host."""
    problem = problem_of(
        resident=[10] * 8,
        tensors=[],
        capacity=[20, 30, 40],
        allowed=[[0, 1]] * 8,
        spillable=[True] * 8,
        spill="auto",
    )
    device_of = BASELINES["smallest-tables"](replace(problem, tables=tuple(range(8))))
    assert sorted(device_of) == [0, 0, 1, 1, 1, 2, 2, 2]


def test_a_program_without_tables_has_no_recipe_for_them() -> None:
    with pytest.raises(DoesNotFitError, match="reads no rows"):
        BASELINES["smallest-tables"](chain(8, 7))
    with pytest.raises(DoesNotFitError, match="does not fit on the host"):
        BASELINES["smallest-tables"](replace(recommender(gpu=5), capacity_bytes=(5, 5, 60)))
    with pytest.raises(DoesNotFitError, match="may not be on the host"):
        BASELINES["smallest-tables"](replace(recommender(gpu=5), spill="never"))


def test_layers_on_the_host_alone():
    """What is outside is a unit on the host that has no op, and no layer."""
    problem = problem_of(resident=[1] * 3, tensors=[(0, [1], 8), (1, [2], 8)], capacity=[100])
    assert BASELINES["layers"](replace(problem, fetched=(1,))) == (0, 0, 0)
