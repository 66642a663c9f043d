"""What is said of placements that spill, against trying every placement."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from small_problems import (
    best_by_enumeration,
    least_within,
    placements_of,
    problem_of,
    random_problem,
    scores,
    search_exhaustively,
)

from placer.prediction.scoring import score
from placer.problem.device_peaks import DevicePeak
from placer.problem.placement_problem import PlacementProblem
from placer.solving.caps import tightening
from placer.solving.caps.tightening import PeakFinder, solve_under_peaks
from placer.solving.solution import Solution, SolverParameters, Status
from placer.solving.solver import solve
from placer.solving.transfer import stage

QUICK = SolverParameters(time_limit_seconds=10.0, workers=1)


@pytest.fixture
def perfect_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "search_in_child", search_exhaustively)


@pytest.mark.usefixtures("perfect_child")
def test_what_is_proven_is_the_least_within_the_allowance() -> None:
    """1,000 problems: value and bound of OPTIMAL are the least of all placements that take no more
    than the allowance, and the allowance is what its rule says."""
    spilled = 0
    for seed in range(1_000):
        problem = random_problem(seed, most_ops=6, spill="auto")
        solution = solve(problem, QUICK)
        best = best_by_enumeration(problem)
        if best is None:
            assert solution.status is Status.INFEASIBLE, seed
            continue
        assert solution.status is Status.OPTIMAL, seed
        assert (solution.spill_allowance_bytes, solution.lower_bound) == best, seed
        assert solution.value == solution.lower_bound, seed
        assert solution.spilled_bytes <= best[0], seed
        spilled += best[0] > 0
    assert spilled > 400


def ask_more(problem: PlacementProblem, rng: random.Random) -> PlacementProblem:
    """The problem with one group pinned to a device that it may use, or to the host, or two groups
    kept together; what counts as spilled stays what it was."""
    counted = problem.counted or tuple(problem.host not in known for known in problem.allowed)
    may_be = [
        {*allowed, *([problem.host] if spillable else [])}
        for allowed, spillable in zip(problem.allowed, problem.spillable, strict=True)
    ]
    chosen, other = rng.choice(problem.group), rng.choice(problem.group)
    if rng.random() < 0.5:
        other = chosen
    ops = [op for op, group in enumerate(problem.group) if group in (chosen, other)]
    devices = set.intersection(*(may_be[op] for op in ops))
    if chosen == other and devices:
        devices = {rng.choice(sorted(devices))}
    return replace(
        problem,
        counted=counted,
        group=tuple(chosen if op in ops else group for op, group in enumerate(problem.group)),
        allowed=tuple(
            tuple(sorted(devices)) if op in ops else allowed
            for op, allowed in enumerate(problem.allowed)
        ),
        spillable=tuple(
            spillable and op not in ops for op, spillable in enumerate(problem.spillable)
        ),
    )


@pytest.mark.usefixtures("perfect_child")
def test_a_request_more_never_lowers_the_least_within_an_allowance() -> None:
    """1,000 problems with up to three requests, one after the other, all with one allowance: what
    is proven only rises, and is the least of all placements."""
    asked = 0
    for seed in range(1_000):
        rng = random.Random(seed)
        problem = random_problem(seed, most_ops=5, spill="auto")
        most = sum(problem.spill_bytes())
        problem = replace(problem, spill_allowance_bytes=rng.randint(0, most))
        least = solve(problem, QUICK).lower_bound
        for _ in range(3):
            problem = ask_more(problem, rng)
            solution = solve(problem, QUICK)
            feasible = scores(problem)
            assert (solution.status is Status.INFEASIBLE) == (not feasible), seed
            if not feasible or least is None:
                break
            allowance = problem.spill_allowance_bytes or 0
            assert solution.value == solution.lower_bound == least_within(feasible, allowance), seed
            assert solution.lower_bound is not None
            assert solution.lower_bound >= least, seed
            least = solution.lower_bound
            asked += 1
    assert asked > 500


def peak_finder(problem: PlacementProblem, hidden: Sequence[dict[int, int]]) -> PeakFinder:
    """Peaks over moments that the problem does not know."""
    loads = replace(problem, live_bytes=tuple(hidden))

    def find_peaks(device_of: Sequence[int]) -> list[DevicePeak]:
        rows = score(loads, device_of).load_bytes
        found = []
        for device in range(len(problem.device_names)):
            worst = max(range(len(rows)), key=lambda row: rows[row][device])
            found.append(DevicePeak(peak_bytes=rows[worst][device], moment=hidden[worst]))
        return found

    return find_peaks


@pytest.mark.usefixtures("perfect_child")
def test_what_is_proven_under_peaks_is_the_least_within_the_printed_allowance() -> None:
    """300 problems whose peaks are hidden from them: no bound above the least of all placements
    that keep the caps and the allowance that is printed; wherever one exists, one is found."""
    spilled = 0
    for seed in range(300):
        rng = random.Random(seed)
        problem = replace(random_problem(seed, most_ops=6, spill="auto"), live_bytes=())
        problem = replace(problem, transient_bytes=(0,) * len(problem.device_names))
        hidden = [
            {op: rng.randint(0, 4) for op in range(len(problem.op_names)) if rng.random() < 0.5}
            for _ in range(3)
        ]
        find_peaks = peak_finder(problem, hidden)
        solution = solve_under_peaks(problem, find_peaks, QUICK)
        known = replace(problem, live_bytes=tuple(hidden))
        feasible = scores(known)
        assert (solution.status is Status.INFEASIBLE) == (not feasible), seed
        if not feasible:
            continue
        assert solution.device_of is not None, seed
        assert not score(known, solution.device_of).violations, seed
        allowance = solution.spill_allowance_bytes
        assert allowance is not None, seed
        assert solution.spilled_bytes <= allowance, seed
        least = least_within(feasible, allowance)
        assert solution.lower_bound is None or solution.lower_bound <= least, seed
        assert solution.status is not Status.OPTIMAL or solution.value == least, seed
        spilled += solution.spilled_bytes > 0
    assert spilled > 60


def test_the_host_alone_is_the_answer_where_the_solver_finds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the solver proposes peaks over a cap; the host could hold everything."""
    problem = problem_of(
        resident=[4, 4, 4],
        tensors=[(0, [1], 5), (1, [2], 5)],
        capacity=[8, 8, 50],
        allowed=[[0, 1]] * 3,
        spillable=[True] * 3,
        spill="auto",
    )

    def propose(_problem: PlacementProblem, *_: object, **__: object) -> Solution:
        return Solution(status=Status.FEASIBLE, device_of=(0, 0, 1), value=5)

    def find_peaks(device_of: Sequence[int]) -> list[DevicePeak]:
        return [
            DevicePeak(peak_bytes=9 * device_of.count(device), moment={}) for device in range(3)
        ]

    monkeypatch.setattr(tightening, "solve", propose)
    limit = replace(QUICK, time_limit_seconds=2.2)
    solution = solve_under_peaks(problem, find_peaks, limit)
    assert solution.status is Status.FEASIBLE
    assert solution.device_of == (2, 2, 2)
    assert "spill_all" in dict(solution.warnings)
    never = solve_under_peaks(replace(problem, spill="never"), find_peaks, limit)
    assert never.status is Status.UNKNOWN


def test_a_placement_takes_of_the_allowance_what_it_says() -> None:
    """Pinned ops count, what belongs on the host does not, and an op that holds nothing counts as a
    byte."""
    problem = problem_of(
        resident=[4, 0, 8, 9],
        tensors=[(0, [1], 2)],
        capacity=[8, 50],
        allowed=[[1], [0], [1], [0]],
        spillable=[False, True, False, True],
        spill="auto",
    )
    problem = replace(problem, counted=(True, True, False, True))
    assert problem.spill_bytes() == (6, 1, 0, 9)
    assert problem.asked_spill_bytes() == 6
    assert score(problem, (1, 1, 1, 0)).spilled_bytes == 7
    over = score(replace(problem, spill_allowance_bytes=6), (1, 1, 1, 0))
    assert over.violations[-1] == "7 bytes spill to CPU:0, 1 above the allowance of 6"
    assert list(placements_of(problem))
