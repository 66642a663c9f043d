"""The bound from the sets that devices may hold, against trying every placement, in an interpreter
without TensorFlow."""

from __future__ import annotations

import numpy as np
import pytest
from long_tests import long_test
from searches_in_children import in_a_child
from test_device_counts import hairpin, last_bounds, solved, solved_with_host, unit_problem

from placer.solving.reduction.unit_problem import UnitProblem

DEVICE_SETS = "placer.solving.bounds.device_sets:DeviceSetBound"
CUT_GRAPH = "placer.solving.bounds.cut_graph:CutGraph"

FLAWS = {
    "sets_of_too_few_devices": f"{DEVICE_SETS}._sets",
    "cuts_for_sale": f"{CUT_GRAPH}.least_signed",
    "dear_sets_left_out": f"{CUT_GRAPH}.least_signed",
}


def bounds_by_sets(
    problems: list[tuple[UnitProblem, int]], steps: int = 24, flaw: str | None = None
) -> list[int]:
    """The bound of each problem with what is known to be sent, zero if none was found."""
    flawed = None if flaw is None else (FLAWS[flaw], flaw)
    answers = in_a_child("bound_all_by_devices", (problems, steps, 60.0, flawed, "sets"))
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
    """24 layers of 16 experts on eight devices at 130%: seven stages send 6 times 2,000 bytes.  One
    expert elsewhere costs 250 bytes, which is all that the bound from counts knows of."""
    problem = mixture(24, 16, 8, 130)
    (by_sets,) = bounds_by_sets([(problem, 12_000)], steps=96)
    (by_counts,) = last_bounds([(problem, 12_000)], steps=48)
    assert by_counts < 0.4 * 12_000
    assert 0.6 * 12_000 < by_sets <= 12_000


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


def test_a_training_step_is_bounded_by_its_stages() -> None:
    (bound,) = bounds_by_sets([(hairpin(48, 8, 130), 12_000)], steps=96)
    assert 0.7 * 12_000 < bound <= 12_000
