"""Favourite children: the linear program against every choice, and m-SCT on a graph by hand."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest
from searches_in_children import in_a_child
from small_problems import problem_of

from benchmarks.step_time.m_sct import (
    Precedence,
    favourite_children,
    greedy_favourites,
    m_sct,
)
from placer.prediction.times.step_time import step_seconds
from placer.problem.placement_problem import PlacementProblem
from placer.solving.baselines import BASELINES
from placer.solving.baselines.tasks import Tasks


def random_precedence(seed: int) -> Precedence:
    rng = random.Random(seed)
    count = rng.randint(1, 6)
    pairs = [(a, b) for b in range(count) for a in range(b) if rng.random() < 0.5][:8]
    return Precedence(
        seconds=tuple(rng.uniform(0.0, 3.0) for _ in range(count)),
        pairs=tuple(pairs),
        sending=tuple(rng.choice([0.0, rng.uniform(0.0, 4.0)]) for _ in pairs),
    )


def makespan(precedence: Precedence, apart: tuple[int, ...]) -> float:
    begin = [0.0] * len(precedence.seconds)
    order = sorted(zip(precedence.pairs, precedence.sending, apart, strict=True))
    for (parent, child), sending, x in order:
        begin[child] = max(begin[child], begin[parent] + precedence.seconds[parent] + sending * x)
    return max(b + seconds for b, seconds in zip(begin, precedence.seconds, strict=True))


def is_matching(pairs: list[tuple[int, int]]) -> bool:
    parents, children = [a for a, _ in pairs], [b for _, b in pairs]
    return len({*parents}) == len(parents) and len({*children}) == len(children)


def best_by_enumeration(precedence: Precedence) -> float:
    """Over all sets of pairs in which nobody has two favourites."""
    return min(
        makespan(precedence, apart)
        for apart in product((0, 1), repeat=len(precedence.pairs))
        if is_matching([p for p, x in zip(precedence.pairs, apart, strict=True) if not x])
    )


def test_the_program_relaxes_every_choice() -> None:
    """Its makespan is between the critical path without messages and the best choice; where its
    x are whole it is that choice; favourites are one per parent and child, greedy ones too."""
    cases = [random_precedence(seed) for seed in range(120)]
    answers = in_a_child("find_all_favourites", cases)
    whole = 0
    for case, answer in zip(cases, answers, strict=True):
        (apart, value), favourites = answer
        best = best_by_enumeration(case)
        assert makespan(case, (0,) * len(case.pairs)) - 1e-6 <= value <= best + 1e-6
        if all(min(x, 1 - x) < 1e-9 for x in apart):
            whole += 1
            assert value == pytest.approx(best, abs=1e-6)
        assert is_matching([tuple(pair) for pair in favourites])
        assert is_matching(greedy_favourites(case))
    assert 30 < whole < len(cases)


def waiting() -> PlacementProblem:
    """Two parents; what a sends is dear.

    a (1) --4--> f (5) <--0.5-- b (2)
      \\-----3--> h (3) <--0.2--/
    """
    problem = problem_of(
        resident=[0] * 4,
        tensors=[(0, [2], 40), (1, [2], 5), (0, [3], 30), (1, [3], 2)],
        capacity=[9, 9],
        allowed=[[0, 1]] * 4,
    )
    return replace(
        problem,
        device_names=("GPU:0", "GPU:1"),
        objective="step-time",
        seconds=((1.0,) * 2, (2.0,) * 2, (5.0,) * 2, (3.0,) * 2),
        bandwidth=((10.0,) * 2,) * 2,
        latency=((0.0,) * 2,) * 2,
    )


def test_a_device_is_kept_for_the_favourite_child() -> None:
    """h could begin beside a at 2.2, f only at 2.5.  m-ETF lets h go first, and f has to leave;
    m-SCT waits 0.3 s for f, the favourite of a, and the step is shorter by a quarter."""
    problem = waiting()
    assert favourite_children(Tasks(problem))[0] == 2
    assert BASELINES["m-etf"](problem) == (0, 1, 1, 0)
    assert m_sct(problem) == (0, 1, 0, 1)
    assert step_seconds(problem, (0, 1, 1, 0)) == pytest.approx(10.0)
    assert step_seconds(problem, (0, 1, 0, 1)) == pytest.approx(7.5)


def test_without_the_program_the_longest_path_decides() -> None:
    """GLOP gave up: the greedy rule finds the same favourite of a, by the path of 10 through f."""
    problem = waiting()
    assert favourite_children(Tasks(problem), lambda _: None)[0] == 2
