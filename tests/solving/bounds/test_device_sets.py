"""The bound from the sets that devices may hold, against trying every placement, in an interpreter
without TensorFlow."""

from __future__ import annotations

import functools
import random
from dataclasses import replace

import numpy as np
import pytest
from long_tests import long_test
from searches_in_children import in_a_child, search_each
from small_problems import feasible_placements

from placer.errors import PlacerError
from placer.problem.placement_problem import ProblemTensor
from placer.solving.reduction.unit_problem import Row, UnitProblem

DEVICE_SETS = "placer.solving.bounds.device_sets:DeviceSetBound"
CUT_GRAPH = "placer.solving.bounds.cut_graph"

SEARCH = "placer.solving.transfer.transfer_process:search_transfer"

FLAWS = {
    "sets_of_too_few_devices": f"{DEVICE_SETS}._sets",
    "cuts_for_sale": f"{CUT_GRAPH}:CutGraph.least_signed",
    "dear_sets_left_out": f"{CUT_GRAPH}:CutGraph.least_signed",
    "joined_too_soon": f"{CUT_GRAPH}:_joined",
    "followers_with_a_value": f"{CUT_GRAPH}:_Merging.may_follow",
}


def unit_problem(
    allowed: list[tuple[int, ...]],
    nets: list[tuple[int, tuple[int, ...], int]],
    rows: list[tuple[list[int], list[int]]],
) -> UnitProblem:
    """Units without a host; nets are (producer, consumers, bytes), rows (weights, capacity)."""
    units = tuple(range(len(allowed)))
    return UnitProblem(
        device_count=len(rows[0][1]),
        host=len(rows[0][1]) - 1,
        allowed=tuple(allowed),
        nets=tuple(ProblemTensor(producer=p, consumers=c, bytes=b) for p, c, b in nets),
        rows=tuple(Row(weights=tuple(w), capacity=tuple(c)) for w, c in rows),
        cost=((0,) * len(rows[0][1]),) * len(allowed),
        unit_of=units,
        anchor=units,
    )


def drawn(seed: int) -> UnitProblem:
    """Two to four devices, some of them a host; chains and wide nets, pins, one row or two, caps
    that are mostly alike."""
    rng = random.Random(seed)
    devices = rng.choice([2, 3, 3, 4])
    count = rng.randint(3, {2: 8, 3: 7, 4: 6}[devices])
    has_host = rng.random() < 0.4
    usual = tuple(range(devices - has_host))
    allowed = []
    for _ in range(count):
        chance = rng.random()
        pinned = tuple(sorted(rng.sample(range(devices), rng.randint(1, devices))))
        on_host = (devices - 1,) if has_host else usual
        allowed.append(on_host if chance < 0.15 else pinned if chance < 0.25 else usual)
    nets = []
    for _ in range(rng.randint(count - 1, 2 * count)):
        producer, *consumers = rng.sample(range(count), min(count, rng.choice([2, 2, 2, 3, 4])))
        nets.append((producer, tuple(sorted(consumers)), rng.choice([1, 2, 3, 8, 20, 200])))
    if rng.random() < 0.5:
        nets += [(unit, (unit + 1,), rng.choice([5, 10, 10])) for unit in range(count - 1)]
    rows = []
    for _ in range(rng.choice([1, 1, 2])):
        weights = [rng.choice([0, 1, 1, 2, 3, 5]) for _ in range(count)]
        share = sum(weights) / len(usual)
        capacity = [max(1, int(share * rng.choice([1.05, 1.3, 2]))) for _ in range(devices)]
        if rng.random() < 0.7:
            capacity = capacity[:1] * devices
        if has_host:
            capacity[-1] = 100
        rows.append((weights, capacity))
    return unit_problem(allowed, nets, rows)


def drawn_with_host(seed: int) -> UnitProblem:
    """The same with a host that has room for all, open to most units, where each works longer."""
    rng = random.Random(seed)
    problem = drawn(seed)
    host = problem.device_count - 1
    open_to = [rng.random() < 0.8 and problem.device_count > 2 for _ in problem.allowed]
    dear = rng.choice([0, 1, 10, 100])
    return replace(
        problem,
        allowed=tuple(
            tuple(sorted({*allowed, host})) if is_open else allowed
            for allowed, is_open in zip(problem.allowed, open_to, strict=True)
        ),
        rows=tuple(replace(row, capacity=(*row.capacity[:-1], 1000)) for row in problem.rows),
        cost=tuple((0,) * host + (rng.randint(0, dear),) for _ in problem.allowed),
    )


@functools.cache
def solved_with_host(count: int) -> list[tuple[UnitProblem, int]]:
    """Drawn problems with an open host and their least cost, where that is not nothing."""
    problems = [drawn_with_host(seed) for seed in range(count)]
    least = [min(map(each.value, feasible_placements(each)), default=0) for each in problems]
    return [(each, cost) for each, cost in zip(problems, least, strict=True) if cost]


@functools.cache
def solved(count: int) -> list[tuple[UnitProblem, int]]:
    """Drawn problems with their least transfer, where that is not nothing."""
    found = []
    for seed in range(count):
        problem = drawn(seed)
        least = min(map(problem.value, feasible_placements(problem)), default=0)
        if least:
            found.append((problem, least))
    return found


def bounds_by_sets(
    problems: list[tuple[UnitProblem, int]],
    steps: int = 24,
    flaw: str | None = None,
    seconds: float = 60.0,
) -> list[int]:
    """The bound of each problem with what is known to be sent, zero if none was found."""
    flawed = None if flaw is None else (FLAWS[flaw], flaw)
    answers = in_a_child("bound_all_by_devices", (problems, steps, seconds, flawed, "sets"))
    assert all(bounds == sorted(set(bounds)) for bounds in answers)
    return [bounds[-1] if bounds else 0 for bounds in answers]


def shares_of_least(count: int, flaw: str | None = None) -> list[float]:
    """Bounds by the least transfer; known are placements that send twice as much, as no bound is
    above what is known."""
    problems = solved(count)
    assert len(problems) > count // 2
    known = [(problem, 2 * least) for problem, least in problems]
    bounds = bounds_by_sets(known, flaw=flaw)
    return [bound / least for bound, (_, least) in zip(bounds, problems, strict=True)]


def check_drawn(count: int) -> None:
    shares = shares_of_least(count)
    assert 0.9 < max(shares) <= 1.0  # never above the least transfer, and nearly that at times
    assert np.mean(shares) > 0.2


def test_no_placement_transfers_less() -> None:
    check_drawn(200)


def test_no_placement_costs_less_where_a_host_is_open() -> None:
    """Work on the host costs what it takes longer there; bounds are below the least cost, and
    some are near it."""
    problems = solved_with_host(200)
    bounds = bounds_by_sets([(problem, 2 * least) for problem, least in problems])
    shares = [bound / least for bound, (_, least) in zip(bounds, problems, strict=True)]
    assert 0.6 < max(shares) <= 1.0
    assert np.mean([share > 0 for share in shares]) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("count", [1000, pytest.param(3000, marks=long_test)])
def test_no_placement_of_thousands_of_problems_transfers_less(count: int) -> None:
    check_drawn(count)


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_wrong_bound_is_found_out(flaw: str) -> None:
    """Each part of the bound matters: without it some drawn problem is bounded too high."""
    assert max(shares_of_least(200, flaw)) > 1.0


def mixture(layers: int, experts: int, devices: int, percent: int) -> UnitProblem:
    """Layers that send 1,000 bytes on and 1,000 back, each with a router and as many experts, which
    have all the weight and send and receive 250 bytes each."""
    nets: list[tuple[int, tuple[int, ...], int]] = []
    weights: list[int] = []
    for layer in range(layers):
        router = len(weights)
        weights += [0] + [100] * experts
        nets += [(router, (router + 1 + e,), 125) for e in range(experts)]
        nets += [(router + 1 + e, (router,), 125) for e in range(experts)]
        if layer:
            nets += [(router - 1 - experts, (router,), 1_000)]
            nets += [(router, (router - 1 - experts,), 1_000)]
    cap = sum(weights) * percent // (100 * devices)
    everywhere = [tuple(range(devices))] * len(weights)
    return unit_problem(everywhere, nets, [(weights, [cap] * devices)])


def test_many_cheap_units_count_together() -> None:
    """24 layers of 16 experts on eight devices at 130%: seven stages send 6 times 2,000 bytes; one
    expert elsewhere costs 250."""
    (bound,) = bounds_by_sets([(mixture(24, 16, 8, 130), 12_000)], steps=96)
    assert 0.6 * 12_000 < bound <= 12_000


def test_what_is_known_may_be_many_times_the_least() -> None:
    """Steps that are shares of it find little; those of a smaller scale find as much as if what is
    known were the least, and no more than that."""
    problem = mixture(24, 16, 8, 130)
    known = 16 * 12_000
    (coarse,) = bounds_by_sets([(problem, known)], steps=16)
    (bounds,) = in_a_child("bound_all_by_devices", ([(problem, known)], 16, 60.0, None, "scales"))
    assert max(bounds) > max(0.5 * 12_000, 1.2 * coarse)
    assert max(bounds) <= 12_000


def test_bounds_in_several_scales_are_below_the_least() -> None:
    problems = solved(60)
    known = [(problem, 5 * least) for problem, least in problems]
    answers = in_a_child("bound_all_by_devices", (known, 24, 60.0, None, "scales"))
    shares = [
        max(bounds, default=0) / least for bounds, (_, least) in zip(answers, problems, strict=True)
    ]
    assert 0.5 < max(shares) <= 1.0


def hairpin(layers: int, devices: int, percent: int) -> UnitProblem:
    """A training step: layers of weight 100 and two light units each, activations of 1,000 bytes on
    the way up and gradients of 1,000 bytes on the way back."""
    nets = []
    for layer in range(layers):
        forward, weights, backward = 3 * layer, 3 * layer + 1, 3 * layer + 2
        nets += [(weights, (forward, backward), 50_000), (forward, (backward,), 9_000)]
        if layer:
            nets += [(forward - 3, (forward,), 1_000), (backward, (backward - 3,), 1_000)]
    weights_of = [100 if unit % 3 == 1 else 0 for unit in range(3 * layers)]
    cap = sum(weights_of) * percent // (100 * devices)
    everywhere = [tuple(range(devices))] * (3 * layers)
    return unit_problem(everywhere, nets, [(weights_of, [cap] * devices)])


def test_a_training_step_is_bounded_by_its_stages() -> None:
    (bound,) = bounds_by_sets([(hairpin(48, 8, 130), 12_000)], steps=96)
    assert 0.7 * 12_000 < bound <= 12_000


def test_what_fits_on_one_device_has_no_bound() -> None:
    assert bounds_by_sets([(hairpin(4, 2, 200), 2_000)]) == [0]


def test_no_time_no_bound() -> None:
    """The search ends at its deadline, and what it has not found counts as nothing."""
    assert bounds_by_sets([(hairpin(48, 8, 130), 40_000)], seconds=0.0) == [0]


def test_sizes_that_do_not_fit_into_64_bits() -> None:
    """They are an error here, and no bound for who asked for a placement."""
    problem = unit_problem([(0, 1)] * 3, [(0, (1, 2), 5)], [([2**60] * 3, [2**61] * 2)])
    with pytest.raises(PlacerError, match="OverflowError"):
        bounds_by_sets([(problem, 10)])


@long_test
def test_the_search_tells_this_bound() -> None:
    """64 layers on eight devices: what is proven of the placement found."""
    problem = hairpin(64, 8, 130)
    known = [min(7, unit // 24) for unit in range(problem.unit_count)]
    (answer,) = search_each(SEARCH, [(problem, [known])], seconds=10.0)
    assert answer.lower_bound is not None
    assert 0 < answer.lower_bound <= 12_000
