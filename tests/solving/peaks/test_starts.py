"""Where the search along orders begins, how it breaks ties, and that debris is cleared under caps
on predicted peaks too."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from small_problems import problem_of

from placer.prediction.orders.possible_lifetimes import PossibleLifetimes
from placer.problem.placement_problem import PlacementProblem
from placer.solving.compiled.arrays import Floats
from placer.solving.process.search_run import BestSoFar, Effort
from placer.solving.reduction.unit_problem import reduce_to_units
from placer.solving.search import peak_search as search_module
from placer.solving.search.multilevel_search import Level
from placer.solving.search.peak_problem import PeakProblem, to_peak_problem, to_row_problem
from placer.solving.search.peak_search import PeakSearch
from placer.solving.tidying import tidy_within

COUNT = 40


def shuffled_chain(capacity: int) -> tuple[PlacementProblem, PeakProblem]:
    """A chain of ops that hold a byte each, numbered in any order, with its own order as position;
    every tensor takes ten bytes to send."""
    number = list(range(COUNT))
    random.Random(1).shuffle(number)
    problem = problem_of(
        resident=[0] * COUNT,
        tensors=[(number[i], [number[i + 1]], 10) for i in range(COUNT - 1)],
        capacity=[capacity] * 4 + [0],
        allowed=[list(range(4))] * COUNT,
    )
    lifetimes = PossibleLifetimes(orders=1, length=COUNT)
    for op in number:
        lifetimes.add_buffer(op, 0, 1)
        lifetimes.add_read(op, 0, COUNT - 1, 1)
    position: Floats = np.empty(COUNT)
    position[number] = np.arange(COUNT)
    units = reduce_to_units(problem)
    caps = problem.capacity_bytes
    return problem, to_peak_problem(problem, units, lifetimes, caps, [position])


def test_given_positions_are_dealt_out_before_anything_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With nothing improved, the chain is cut where a device is full: in three places."""
    _, peaks = shuffled_chain(12)
    search = PeakSearch(peaks, [], 0, lambda _: None)
    monkeypatch.setattr(search, "improve", lambda _level, device_of, *_: device_of)
    search.step(np.inf)
    assert search.best is not None
    assert search.best.value == 30.0


def test_of_what_is_above_the_caps_the_nearest_is_kept_beside_the_best() -> None:
    """A placement above a cap is worth more than any that fits, and may cost less."""
    _, peaks = shuffled_chain(12)
    search = PeakSearch(peaks, [], 0, lambda _: None)
    search.keep(search.judge(search.finest, np.zeros(COUNT, np.int64)))
    assert search.near is not None
    assert search.near_cost == 0.0
    search.step(np.inf)
    assert search.best is not None
    assert search.best.value == 30.0 < search.near.value


def test_near_a_placement_that_is_above_a_cap_it_is_mended_first() -> None:
    """A chain in four stages, the first one op too long: the first cycle has it on the next
    device, and sends as much."""
    _, peaks = shuffled_chain(12)
    position = peaks.positions[0]
    stages = np.searchsorted([13, 23, 33], position, side="right").astype(np.int64)
    search = PeakSearch(replace(peaks, is_near=True), [stages.tolist()], 0, lambda _: None)
    assert search.best.value > search.most
    search.step(np.inf)
    assert search.best.value == 30.0


def test_placements_that_keep_more_free_are_found_beside_the_cheapest() -> None:
    """A chain that two devices of four hold, or three or all with a third or half of them free:
    some that cost more keep more free, and where nothing is to be kept free two is all.  None has
    all units where the best or another one has them."""
    _, peaks = shuffled_chain(23)
    least_full = {}
    for spread in (0.0, 0.6):
        search = PeakSearch(replace(peaks, spread=spread), [], 0, lambda _: None)
        search.run(time.time() + 60.0, 24)
        assert search.best is not None
        assert search.best.value == 10.0
        others = search.others()
        assert [each.value for each in others] == sorted(each.value for each in others)
        every = {each.device_of.tobytes() for each in (search.best, *others)}
        assert len(every) == 1 + len(others)
        least_full[spread] = min(np.bincount(each.device_of).max() for each in others)
    assert least_full[0.6] <= 15 < least_full[0.0]


def test_what_is_above_a_cap_goes_where_it_costs_least() -> None:
    """Of four ops that one accelerator holds two of, the cheap ones per byte go to the host."""
    problem = problem_of(
        resident=[4, 4, 4, 4], tensors=[], capacity=[8, 100], allowed=[[0, 1]] * 4, host=1
    )
    peaks = to_row_problem(reduce_to_units(problem))
    search = PeakSearch(peaks, [], 0, lambda _: None)
    costs = np.array([[0.0, cost] for cost in (50.0, 1.0, 60.0, 2.0)])
    arrays = search.arrays._replace(units=search.arrays.units._replace(cost=costs))
    search.arrays, search.finest = arrays, Level(arrays, search.data_of(None))
    search.run(time.time() + 60.0, 4)
    assert search.best is not None
    assert search.best.device_of.tolist() == [0, 1, 0, 1]
    assert search.best.value == 3.0


def test_counted_work_finds_the_same_whichever_thread_is_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of the cycles are those of a second search beside, which neither waits for the first
    nor learns from it."""
    _, peaks = shuffled_chain(11)
    found, step = set(), PeakSearch.step
    for slow in (0, 1):

        def late(search: PeakSearch, deadline: float) -> None:
            if bool(search.problem.positions) is bool(slow):  # noqa: B023 (called in this round)
                time.sleep(0.01)
            step(search, deadline)

        monkeypatch.setattr(PeakSearch, "step", late)
        best = BestSoFar(lambda _: None)
        effort = Effort(deadline=time.time() + 60.0, work_limit=8)
        search_module.search_peaks(peaks, [], best, effort)
        found.add((best.answer.device_of, best.answer.others))
    assert len(found) == 1


def test_of_equal_transfer_few_devices_and_then_low_peaks_win() -> None:
    _, peaks = shuffled_chain(40)
    search = PeakSearch(peaks, [], 0, lambda _: None)
    position = peaks.positions[0]
    halves = (position < COUNT / 2).astype(np.int64)
    uneven = (position < COUNT / 4).astype(np.int64)
    quarters = (position // (COUNT / 4)).astype(np.int64)
    ranks = [search.tie_rank(each) for each in (halves, uneven, quarters)]
    assert ranks == sorted(ranks)
    assert ranks[0] < ranks[1]


def test_debris_stays_where_a_predicted_peak_needs_it_to() -> None:
    """An op alone on a device goes to another, but to none that is predicted to be full."""
    problem = problem_of(
        resident=[5, 5, 1],
        tensors=[(0, [1], 3)],
        capacity=[9, 9, 9, 0],
        allowed=[[0], [1], [0, 1, 2]],
    )

    def predict(full: Sequence[int]) -> tuple[int, ...]:
        def overruns(device_of: Sequence[int]) -> list[int]:
            return [5 if device in full and device_of[2] == device else 0 for device in range(4)]

        return tidy_within(problem, (0, 1, 2), overruns)[0]

    assert predict([]) in ((0, 1, 0), (0, 1, 1))
    assert predict([0]) == (0, 1, 1)
    assert predict([1]) == (0, 1, 0)
    assert predict([0, 1]) == (0, 1, 2)
