"""Costs beside bytes: slower work, messages, and what is fetched, against enumeration."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from placer.prediction.scoring import score
from placer.problem.placement_problem import from_json, to_json
from placer.solving import solver
from placer.solving.compiled.gain_table import transfer_of
from placer.solving.reduction.contraction import contract
from placer.solving.reduction.relaxation import relax, with_one_accelerator
from placer.solving.reduction.unit_problem import reduce_to_units
from placer.solving.search.first_fit import first_placement
from placer.solving.search.unit_arrays import transfer_arrays
from placer.solving.solution import SolverParameters, Status
from placer.solving.transfer import solving
from placer.solving.transfer.solving import forced_bytes
from tests.searches_in_children import in_a_child, search_each
from tests.small_problems import (
    feasible_placements,
    placements_of,
    problem_of,
    random_problem,
    search_exhaustively,
    with_costs,
)

SEEDS = range(60)


def test_a_cost_is_bytes_messages_and_slower_work():
    """One tensor of 10 bytes goes to two devices, one of them for the outside world; a signal is a
    message without bytes, and an op on the host costs what it is slower there."""
    problem = replace(
        problem_of(
            resident=[0, 0, 0],
            tensors=[(0, [1], 10)],
            capacity=[9, 9, 9],
            control_edges=[(0, 2), (0, 2), (1, 2)],
        ),
        slower_bytes=((0, 1, 7), (0, 1, 7), (0, 1, 7)),
        message_bytes=100,
        fetched=(0,),
    )
    found = score(problem, (0, 1, 2))
    assert found.transfer_bytes == 10
    assert (found.sent_bytes, found.messages, found.slower_bytes) == (20, 4, 8)
    assert found.cost == 20 + 4 * 100 + 8
    assert score(problem, (2, 2, 2)).cost == 3 * 7


@pytest.mark.parametrize("seed", SEEDS)
def test_units_cost_what_the_scorer_says(seed: int):
    """Whatever the placement, and read back from JSON; arrays for compiled code say the same."""
    problem = with_costs(random_problem(seed, most_ops=5), seed)
    assert from_json(to_json(problem)) == problem
    units = reduce_to_units(problem)
    arrays = transfer_arrays(units)
    for device_of in itertools.islice(placements_of(problem), 50):
        cost = score(problem, device_of).cost
        projected = units.project(device_of)
        assert units.value(projected) == cost
        assert transfer_of(arrays, np.array(projected, np.int64)) == cost
        assert units.expand(projected) == tuple(device_of)


@pytest.mark.parametrize("seed", SEEDS)
def test_reductions_keep_a_least_placement(seed: int):
    """The contracted problem has the same least cost; simpler ones, and what is forced, no more."""
    units = reduce_to_units(with_costs(random_problem(seed), seed))
    costs = sorted((units.value(p), p) for p in feasible_placements(units))
    smaller = contract(units)
    found = [smaller.value(p) for p in feasible_placements(smaller)]
    assert min(found, default=None) == (costs[0][0] if costs else None)
    if not costs:
        return
    least, best = costs[0]
    assert forced_bytes(units) <= least
    inseparable = contract(units, least)
    assert min(map(inseparable.value, feasible_placements(inseparable))) == least
    one = with_one_accelerator(units)
    sides = [int(device == units.host) for device in best]
    assert one.is_feasible(sides)
    assert one.value(sides) <= least
    simpler = relax(units, best, 0.3)
    assert min(map(simpler.value, feasible_placements(simpler))) <= least
    start = first_placement(smaller, [], math.inf)
    assert start is None or smaller.value(start) >= least


def test_cuts_and_cp_sat_prove_the_least_cost():
    """Branching on minimum cuts (two devices) and CP-SAT end at the least cost, proven."""
    drawn = [reduce_to_units(with_costs(random_problem(seed), seed)) for seed in range(200)]
    both = [(units, feasible_placements(units)) for units in drawn]
    both = [(units, found) for units, found in both if found]
    two = [(units, found[0]) for units, found in both if units.device_count == 2]
    least = [min(map(units.value, found)) for units, found in both]
    of_two = [cost for (units, _), cost in zip(both, least, strict=True) if units.device_count == 2]
    assert len(two) > 40
    answers = in_a_child("branch_all", (two, None))
    assert [answer["bounds"][-1] if answer["bounds"] else 0 for answer in answers] == of_two
    assert all(answer["proven"] for answer in answers)
    search = "placer.solving.transfer.transfer_process:search_few_units"
    found = search_each(search, [(units, []) for units, _ in both])
    assert [answer.lower_bound for answer in found] == least
    values = [units.value(answer.device_of) for (units, _), answer in zip(both, found, strict=True)]
    assert values == least


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_proven_is_the_least_cost(seed: int, monkeypatch: pytest.MonkeyPatch):
    """A solution's value is its cost, and an optimal one costs the least of all placements."""
    monkeypatch.setattr(solving, "search_in_child", search_exhaustively)
    problem = with_costs(random_problem(seed), seed)
    scores = [score(problem, device_of) for device_of in placements_of(problem)]
    least = min((found.cost for found in scores if not found.violations), default=None)
    found = solver.solve(problem, SolverParameters(time_limit_seconds=60.0))
    assert found.value == least
    assert found.status is (Status.INFEASIBLE if least is None else Status.OPTIMAL)
