"""What is said about problems without a placement."""

from __future__ import annotations

import re
from dataclasses import replace

from small_problems import best_by_enumeration, problem_of, random_problem

from placer.problem import PlacementProblem
from placer.solving.conflict import explain_conflict
from placer.solving.solution import SolverParameters, Status
from placer.solving.solver import solve

QUICK = SolverParameters(time_limit_seconds=10.0, workers=1)


def with_caps(problem: PlacementProblem, fix: str) -> PlacementProblem:
    """The problem under the caps that a fix asks for."""
    caps = dict(re.findall(r"([A-Z]+:\d+)=(\d+)", fix))
    return replace(
        problem,
        capacity_bytes=tuple(
            int(caps.get(name, cap))
            for name, cap in zip(problem.device_names, problem.capacity_bytes, strict=True)
        ),
    )


def test_every_fix_works() -> None:
    """Each request that a conflict proposes leads to a problem that has a placement, and one
    percent less on every cap than is proposed often does not."""
    fixes = 0
    for seed in range(300):
        problem = random_problem(seed, most_ops=6, spill="auto" if seed % 2 else "never")
        if best_by_enumeration(problem) is not None:
            continue
        for fix in explain_conflict(problem)["fixes"]:
            fixes += 1
            fixed = replace(problem, spill="auto") if "--spill" in fix else with_caps(problem, fix)
            assert best_by_enumeration(fixed) is not None, (seed, fix)
    assert fixes > 50


def test_an_overfull_device_is_shown_with_its_numbers() -> None:
    """Two ops pinned to a device that holds one of them, beside what both devices hold."""
    problem = problem_of(
        resident=[6, 6, 1], tensors=[], capacity=[10, 100], allowed=[[0], [0], [0, 1]]
    )
    solution = solve(problem, QUICK)
    assert solution.status is Status.INFEASIBLE
    assert solution.conflict["caps"] == [
        {"devices": "GPU:0", "needed_bytes": 12, "usable_bytes": 10},
        {"devices": "GPU:0, CPU:0", "needed_bytes": 13, "usable_bytes": 110},
    ]
    (fix,) = solution.conflict["fixes"]
    assert fix == "raise the caps: --max-memory GPU:0=12 (bytes, beside any --reserve)"


def test_a_group_that_fits_nowhere_is_named() -> None:
    """The heaviest ops of the group come first, then how many there are."""
    problem = problem_of(resident=[1, 7, 3, 1], tensors=[], capacity=[8, 8], group=[0, 0, 0, 1])
    solution = solve(problem, QUICK)
    assert solution.conflict["groups"] == [
        {"ops": "op1, op2, op0", "op_count": 3, "bytes": 11, "largest_usable_bytes": 8}
    ]


def test_pins_that_contradict_each_other_are_named() -> None:
    """A group pinned to two devices has no fix by memory."""
    problem = problem_of(
        resident=[1, 1], tensors=[], capacity=[8, 8], group=[0, 0], allowed=[[0], [1]]
    )
    solution = solve(problem, QUICK)
    assert solution.status is Status.INFEASIBLE
    assert solution.conflict["pins"] == [
        {"ops": "op0, op1", "op_count": 2, "allowed": "CPU:0 against GPU:0"}
    ]
    assert solution.conflict["fixes"] == []


def test_spilling_is_proposed_where_it_helps() -> None:
    """With ``--spill never`` and a host that has room, the first fix is to spill."""
    problem = problem_of(
        resident=[4, 4],
        tensors=[(0, [1], 1)],
        capacity=[5, 50],
        allowed=[[0], [0]],
        spillable=[True, True],
    )
    conflict = solve(problem, QUICK).conflict
    assert conflict["fixes"][0] == "let what does not fit go to the host: --spill auto"
    assert solve(replace(problem, spill="auto"), QUICK).spilled_bytes == 4
