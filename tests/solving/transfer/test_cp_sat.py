"""The CP-SAT model against trying every placement.

OR-Tools must not be loaded into a process that may have loaded TensorFlow, so one child
interpreter solves a whole batch of problems.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from small_problems import best_by_enumeration, problem_of, random_problem

from placer.solving.process.child_search import child_command
from placer.solving.reduction.contraction import contract
from placer.solving.reduction.reduced_problem import ReducedProblem, SpillRules, reduce_to_units

BATCH = """
import sys, time
from pathlib import Path
from placer.solving.process.search_result import Effort, ResultFile
from placer.solving.solver_process import search
for problem in sorted(Path(sys.argv[1]).glob("*.problem")):
    effort = Effort(deadline=time.time() + 20.0, seed=0, workers=1)
    search(problem, ResultFile(problem.with_suffix(".json")), effort)
"""


def solve_batch(
    folder: Path, problems: list[tuple[ReducedProblem, list[int] | None]]
) -> list[dict[str, object]]:
    paths = [folder / f"{number:04}.problem" for number in range(len(problems))]
    for path, (problem, hint) in zip(paths, problems, strict=True):
        path.write_text(problem.to_json(hint))
    bootstrap = child_command()[-1].partition("from placer")[0]
    subprocess.run([sys.executable, "-P", "-c", bootstrap + BATCH, str(folder)], check=True)
    return [json.loads(path.with_suffix(".json").read_text()) for path in paths]


@pytest.fixture(scope="module")
def random_batch(
    tmp_path_factory: pytest.TempPathFactory,
) -> list[tuple[int, ReducedProblem, dict[str, object]]]:
    seeds = range(300)
    reduced = [contract(reduce_to_units(random_problem(seed))) for seed in seeds]
    hints = [
        [devices[seed % len(devices)] for devices in problem.allowed]
        if seed % 2 and all(problem.allowed)
        else None
        for seed, problem in zip(seeds, reduced, strict=True)
    ]
    results = solve_batch(tmp_path_factory.mktemp("batch"), list(zip(reduced, hints, strict=True)))
    return list(zip(seeds, reduced, results, strict=True))


def test_cp_sat_proves_what_enumeration_finds(
    random_batch: list[tuple[int, ReducedProblem, dict[str, object]]],
) -> None:
    """On 300 problems, with good, bad and no hints: the same optimum, bound and infeasibility."""
    infeasible = 0
    for seed, reduced, result in random_batch:
        best = best_by_enumeration(random_problem(seed))
        if best is None:
            assert result["status"] == "INFEASIBLE", seed
            infeasible += 1
            continue
        device_of = result["device_of"]
        assert result["status"] == "OPTIMAL", seed
        assert isinstance(device_of, list)
        assert reduced.is_feasible(device_of), seed
        assert reduced.value(device_of) == best[1] == result["lower_bound"], seed
    assert 10 < infeasible < 150


def test_huge_sizes_are_scaled_and_bounds_stay_true(tmp_path: Path) -> None:
    """Beyond int64 the placement is still right and the bound is not above the optimum; where
    weights were rounded nothing is claimed as proven."""
    huge = 2**62
    problem = problem_of(
        resident=[3, 3, 3],
        tensors=[(0, [1], 3 * huge + 1), (1, [2], 2 * huge + 1)],
        capacity=[6, 6],
    )
    units = reduce_to_units(problem)
    heavy = replace(problem, resident_bytes=(huge, huge, huge), capacity_bytes=(2 * huge, 2 * huge))
    tight = replace(problem, resident_bytes=(huge + 1,) * 3, capacity_bytes=(2 * huge + 1,) * 2)
    costs, weights, none = solve_batch(
        tmp_path, [(reduce_to_units(p), None) for p in (problem, heavy, tight)]
    )
    assert units.value(costs["device_of"]) == 2 * huge + 1
    assert 1.99 * huge < costs["lower_bound"] <= 2 * huge + 1
    assert reduce_to_units(heavy).is_feasible(weights["device_of"])
    assert weights["lower_bound"] is None
    assert weights["status"] == "UNKNOWN"
    assert (none["status"], none["device_of"]) == ("UNKNOWN", None)


def test_the_least_spill_is_an_objective(tmp_path: Path) -> None:
    """With ``minimise`` the value is what sits on the host and belongs elsewhere."""
    problem = problem_of(
        resident=[4, 3, 3],
        tensors=[(0, [1], 1), (1, [2], 1)],
        capacity=[6, 100],
        allowed=[[0], [0], [0]],
        spillable=[True, True, True],
        spill="auto",
    )
    units = reduce_to_units(problem, SpillRules(minimise=True))
    (result,) = solve_batch(tmp_path, [(units, None)])
    assert result["device_of"] == [1, 0, 0]
    assert result["lower_bound"] == 5  # 4 resident bytes and an output of one
