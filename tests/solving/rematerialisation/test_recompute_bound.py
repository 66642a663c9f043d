"""The bound from the memory of some moments: drawn graphs, and against enumeration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from searches_in_children import in_a_child
from test_rematerialisation import (
    beside_problem,
    chain,
    least_by_enumeration,
    random_problem,
)

from placer.solving.rematerialisation.problem import RematerialisationProblem


def bound(problem: RematerialisationProblem) -> float | None:
    """The least seconds of the model; ``None`` where nothing keeps its budget."""
    return bound_each([problem])[0]


def bound_each(problems: Sequence[RematerialisationProblem]) -> list[float | None]:
    """As :func:`bound`, for many."""
    found: list[float | None] = in_a_child("bound_at_full_moments", problems)
    return found


def between_readers(*, computations: int) -> RematerialisationProblem:
    """A node of 4 bytes that two others read, and before each of them one of 5 that leaves no room
    for it; a second each."""
    return RematerialisationProblem(
        node_names=("a", "large", "r", "larger", "s"),
        seconds=(1, 1, 1, 1, 1),
        bytes=(4, 5, 1, 5, 1),
        inputs=((), (), (0,), (), (0,)),
        order=(0, 1, 2, 3, 4),
        budget_bytes=8,
        most_computations=computations,
    )


def test_what_does_not_wait_is_computed_again():
    """With 7 bytes the node of 5 cannot wait for its reader, with 8 it can; with 6 nothing fits,
    but that is of a moment at which a node is computed again."""
    assert bound(chain(budget=8)) == 6
    assert bound(chain(budget=7)) == 7
    assert least_by_enumeration(chain(budget=7)) == 7


def test_what_it_reads_waits_or_is_computed_again_too():
    """Where ``b`` does not wait, ``a`` comes again with it, as long as it does not wait itself."""
    problem = RematerialisationProblem(
        node_names=("a", "b", "large", "last"),
        seconds=(2, 1, 5, 1),
        bytes=(3, 3, 5, 1),
        inputs=((), (0,), (), (1,)),
        order=(0, 1, 2, 3),
        budget_bytes=7,
    )
    assert bound(problem) == least_by_enumeration(problem) == 9 + 3
    small = replace(problem, bytes=(2, 3, 5, 1))  # a waits
    assert bound(small) == least_by_enumeration(small) == 9 + 1


def test_two_computations_are_not_enough_for_two_gaps():
    """``a`` is there three times or nothing fits."""
    assert bound(between_readers(computations=2)) is None
    assert least_by_enumeration(between_readers(computations=2)) is None
    assert between_readers(computations=3).is_feasible((0, 1, 0, 2, 3, 0, 4))
    assert bound(between_readers(computations=3)) == 6  # how often is not counted


def test_a_gap_counts_at_all_later_moments():
    """``a`` fits beside none of the large nodes; between them is a third at which ``x`` can go."""
    problem = RematerialisationProblem(
        node_names=("a", "large", "r", "x", "y", "t", "larger", "s"),
        seconds=(1,) * 8,
        bytes=(4, 5, 1, 1, 4, 1, 5, 1),
        inputs=((), (), (0,), (), (), (3,), (), (0,)),
        order=tuple(range(8)),
        budget_bytes=8,
    )
    assert in_a_child("find_full_moments", problem) == [1, 4, 6]
    assert bound(problem) is None
    assert bound(replace(problem, bytes=(4, 5, 1, 1, 4, 1, 4, 1))) == 8 + 2


def test_what_nobody_reads_any_more_need_not_wait():
    """``w`` does not fit beside the large node; ``a``, read just before, is over."""
    problem = RematerialisationProblem(
        node_names=("w", "a", "r", "large", "s"),
        seconds=(1,) * 5,
        bytes=(3, 4, 1, 6, 1),
        inputs=((), (), (1,), (), (0,)),
        order=tuple(range(5)),
        budget_bytes=8,
    )
    assert bound(problem) == least_by_enumeration(problem) == 5 + 1


def test_what_is_computed_once_waits():
    """No model without it fits, and what is held beside counts."""
    assert bound(replace(chain(budget=7), once=(0,))) is None
    beside = replace(chain(budget=8), first_bytes=(0, 0, 0, 1, 0, 0))
    assert bound(beside) == least_by_enumeration(beside) == 7


@pytest.mark.slow
@pytest.mark.parametrize("draw", [random_problem, beside_problem])
def test_no_sequence_is_under_the_bound(draw):
    """Most bounds are reached."""
    reached = costs = 0
    kept = {} if draw is beside_problem else {"keep_order": True}
    problems = [draw(seed, **kept) for seed in range(100)]
    for seed, (problem, found) in enumerate(zip(problems, bound_each(problems), strict=True)):
        best = least_by_enumeration(problem)
        if found is None or best is None:
            assert best is None, seed
            continue
        assert found <= best, seed
        reached += found == best
        costs += found > problem.least_seconds
    assert costs >= 3
    assert reached >= 50


def test_fractions_of_seconds_lose_less_than_their_rounding():
    """Bounds of fractions stay below what they are of."""
    seconds = (0.1, 0.2, 0.3, 0.4, 0.7, 0.1)
    found = bound(replace(chain(budget=7), seconds=seconds))
    assert found is not None
    assert 1.9 - 1e-4 < found <= 1.9


def test_a_large_order_is_looked_at_in_places():
    """The fullest is among them."""
    count = 5_000
    backward = range(count)[::-1]
    problem = RematerialisationProblem(
        node_names=tuple(map(str, range(2 * count))),
        seconds=(1,) * (2 * count),
        bytes=(1,) * (2 * count),
        inputs=(*((n - 1,) if n else () for n in range(count)), *((n,) for n in backward)),
        order=tuple(range(2 * count)),
        budget_bytes=10,
    )
    moments = in_a_child("find_full_moments", problem)
    held = problem.held_along(problem.order)
    assert len(moments) <= 2
    assert max(held[moment] for moment in moments) == max(held)
