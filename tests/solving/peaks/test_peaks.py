"""The search under caps on peaks, against summing up everything and trying every placement."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from graphs_by_hand import draw, draw_costs
from hypothesis import given, settings
from hypothesis import strategies as st
from solving.virtual_time import VirtualTime
from steps_by_chance import problem_of, random_step, search_orders

from cost_models.clusters import parse_cluster
from placer.prediction.orders.execution_orders import highest_peak
from placer.prediction.orders.possible_lifetimes import PossibleLifetimes
from placer.prediction.orders.step_peaks import StepPeaks
from placer.prediction.scoring import transfer_bytes
from placer.problem.device_peaks import DevicePeak
from placer.problem.placement_problem import PlacementProblem
from placer.solving.caps import orders, rows
from placer.solving.caps.stages import solve_under_peaks
from placer.solving.compiled.held_bytes import hold, hold_moved, shift
from placer.solving.objectives.refining import value_of
from placer.solving.peaks.search_caps import SearchCaps
from placer.solving.reduction.unit_problem import reduce_to_units
from placer.solving.search.peak_problem import PeakProblem, regroup, to_peak_problem
from placer.solving.search.peak_search import PeakSearch
from placer.solving.search.watch import at_moments, to_held
from placer.solving.solution import Solution, SolverParameters, Status

DEVICES = 3
UNITS = 7
LENGTH = 20


def random_peaks(rng: random.Random) -> PeakProblem:
    """Units that hold and read buffers at random times of two orders."""
    lifetimes = PossibleLifetimes(orders=2, length=LENGTH)
    for _ in range(rng.randint(1, 15)):
        begin = LENGTH * rng.randrange(2)
        first = rng.randrange(LENGTH)
        owner = rng.randrange(-1, UNITS)
        lifetimes.add_buffer(owner, begin + first, rng.choice([0, 3, 5]))
        for _ in range(rng.randint(0 if owner >= 0 else 1, 4)):
            sent = rng.randint(max(0, first - 2), min(first + 3, LENGTH - 1))
            last = rng.randint(sent, LENGTH - 1)
            lifetimes.add_read(rng.randrange(UNITS), begin + sent, begin + last, rng.randint(1, 5))
    problem = PlacementProblem(
        op_names=tuple(map(str, range(UNITS))),
        device_names=("GPU:0", "GPU:1", "CPU:0"),
        host=2,
        resident_bytes=tuple(rng.choice([0, 2]) for _ in range(UNITS)),
        temporary_bytes=(0,) * UNITS,
        seconds=((0.0,) * DEVICES,) * UNITS,
        group=tuple(range(UNITS)),
        allowed=((0, 1, 2),) * UNITS,
        spillable=(False,) * UNITS,
        tensors=(),
        control_edges=(),
        capacity_bytes=(9,) * DEVICES,
        transient_bytes=(0,) * DEVICES,
        live_bytes=(),
        bandwidth=((1.0,) * DEVICES,) * DEVICES,
        latency=((0.0,) * DEVICES,) * DEVICES,
    )
    return to_peak_problem(problem, reduce_to_units(problem), lifetimes, (9,) * DEVICES)


def held_by_definition(peaks: PeakProblem, device_of: Sequence[int]) -> np.ndarray:
    """Every buffer on every device, from when to when it is there."""
    found = np.zeros((DEVICES, peaks.orders * peaks.length))
    buffers = peaks.buffers
    for unit, device in enumerate(device_of):
        found[device] += peaks.resident[unit]
    for buffer, owner in enumerate(buffers.owner):
        for device in range(DEVICES):
            here = [
                read
                for read in np.flatnonzero(buffers.read_of == buffer)
                if device_of[buffers.reader[read]] == device
            ]
            last = max((buffers.read_last[read] for read in here), default=-1)
            if owner >= 0 and device_of[owner] == device:
                first, size = buffers.first[buffer], buffers.size[buffer]
                last = max(last, buffers.done[buffer])
            else:
                first = min((buffers.read_first[read] for read in here), default=0)
                size = max((buffers.read_size[read] for read in here), default=0)
            found[device, first : last + 1] += size
    return found


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000))
def test_what_is_held_is_kept_up_to_date(seed: int) -> None:
    """After any moves the bytes at every time are those counted anew, and the excess has changed by
    what was said; at some moments only, the same bytes; for units joined, the same too, and for
    several that move at once."""
    rng = random.Random(seed)
    peaks = random_peaks(rng)
    times = peaks.orders * peaks.length
    moments = np.array(sorted(rng.sample(range(times), 9)), np.int64)
    some = at_moments(peaks.buffers, moments)
    own = np.repeat(peaks.resident[:, None], len(moments), axis=1)
    held, held_then = to_held(peaks.buffers, peaks.steady()), to_held(some, own)
    device_of = np.array([rng.randrange(DEVICES) for _ in range(UNITS)], np.int64)
    limit = np.full(DEVICES, 6.0)
    in_use = hold(held, device_of, DEVICES, times)
    then, state = hold(held_then, device_of, DEVICES, len(moments)), device_of.copy()
    change, change_then = np.zeros((2, times + 1)), np.zeros((2, len(moments) + 1))
    for _ in range(10):
        before = np.maximum(0.0, in_use - 6.0).sum()
        unit, target = rng.randrange(UNITS), rng.randrange(DEVICES)
        is_there = device_of[unit] == target
        more = shift(held, device_of, in_use, limit, unit, target, change)
        shift(held_then, state, then, limit, unit, target, change_then)
        assert device_of[unit] == state[unit] == target
        assert (in_use == held_by_definition(peaks, device_of)).all()
        assert (then == in_use[:, moments]).all()
        assert more == np.maximum(0.0, in_use - 6.0).sum() - before
        assert not (is_there and more)
        assert not change.any()
        assert not change_then.any()
    assert (hold(held_then, device_of, DEVICES, len(moments)) == in_use[:, moments]).all()
    together = np.flatnonzero(device_of == device_of[rng.randrange(UNITS)])
    source, target = device_of[together[0]], (device_of[together[0]] + 1) % DEVICES
    for least, own in ((held, in_use), (held_then, then)):
        moved = device_of.copy()
        moved[together[::2]] = target
        left = hold_moved(least, device_of, own, together[::2], target)
        there = hold(least, moved, DEVICES, own.shape[1])
        assert (np.array(left) == there[[source, target]]).all()
    joined = np.unique(device_of, return_inverse=True)[1].astype(np.int64)
    count = joined.max() + 1
    kept = np.bincount(joined, peaks.resident, minlength=count)
    own = np.repeat(kept[:, None], len(moments), axis=1)
    coarse = to_held(regroup(some, joined), own)
    of_joined = np.array([device_of[joined == unit][0] for unit in range(count)], np.int64)
    assert (hold(coarse, of_joined, DEVICES, len(moments)) == in_use[:, moments]).all()


@pytest.mark.slow
def test_where_something_fits_it_is_found() -> None:
    """On twelve small steps: where the predicted peaks of some placement keep the caps, the search
    finds such a placement, mostly the one that sends least; what it takes
    to fit does fit."""
    found = possible = least = 0
    for seed in range(12):
        graph, costs, problem = random_step(random.Random(seed))
        find_peaks = StepPeaks(graph, costs, problem)

        def fits(device_of, find_peaks=find_peaks, caps=problem.capacity_bytes) -> bool:
            peaks = find_peaks(device_of)
            return all(peak.peak_bytes <= cap for peak, cap in zip(peaks, caps, strict=True))

        values = [
            value_of(problem, device_of)
            for device_of in itertools.product(*problem.allowed)
            if fits(device_of)
        ]
        units = reduce_to_units(replace(problem, live_bytes=()))
        lifetimes = find_peaks.possible_lifetimes()
        peaks = to_peak_problem(problem, units, lifetimes, problem.capacity_bytes)
        search = PeakSearch(peaks, [], 0, lambda _: None)
        search.run(float("inf"), 12)
        assert search.best is not None
        device_of = units.expand(search.best.device_of.tolist())
        if search.best.value < search.most:
            assert fits(device_of), seed
            assert search.best.value == value_of(problem, device_of)
        possible += bool(values)
        found += bool(values) and fits(device_of)
        least += bool(values) and search.best.value == min(values)
    assert possible > 8
    assert found == possible
    assert least >= 0.8 * possible


def _two_towers():
    """Two chains of products whose variables fill both devices; ends are joined.

    x ---> a0 --> a1 --> ... --> y
      '--> b0 --> b1 --> ... ---'
    """
    length = 6
    chains = [
        f"x -> {' -> '.join(f'{tower}{number}' for number in range(length))} -> y" for tower in "ab"
    ]
    graph = draw(*chains, bytes=400)
    sizes = dict.fromkeys(graph.ops, 1000)
    return graph, draw_costs(graph, persistent_bytes=sizes)


@pytest.mark.parametrize("objective", ["transfer", "step-time"])
def test_tight_caps_are_kept(objective: str) -> None:
    """Two towers of 14,000 bytes of variables on two devices of 8,500: rows know nothing of what is
    received, the plan keeps the caps by the prediction, and something is sent."""
    graph, costs = _two_towers()
    problem = replace(
        problem_of(graph, costs, "GPU:0:8500,GPU:1:8500,CPU:1GiB"), objective=objective
    )
    peaks = StepPeaks(graph, costs, problem)
    solution = solve_under_peaks(
        problem,
        peaks,
        SolverParameters(time_limit_seconds=3.5, workers=1),
        find_lifetimes=peaks.possible_lifetimes,
    )
    assert solution.status in (Status.FEASIBLE, Status.OPTIMAL)
    assert all(peak.peak_bytes <= 8500 for peak in peaks(solution.device_of)[:2])
    assert transfer_bytes(problem, solution.device_of) > 0


def test_caps_are_lowered_where_the_prediction_is_higher() -> None:
    """A prediction that sees 300 bytes more than the orders tell: the search is told so, and finds
    what fits all the same."""
    graph, costs = _two_towers()
    problem = problem_of(graph, costs, "GPU:0:8800,GPU:1:8800,CPU:1GiB")
    peaks = StepPeaks(graph, costs, problem)
    asked = []

    def find_overruns(device_of: Sequence[int]) -> list[int]:
        asked.append(device_of)
        return [peak.peak_bytes + 300 - 8800 for peak in peaks(device_of)[:2]] + [0]

    parameters = SolverParameters(time_limit_seconds=10.0, workers=1, work_limit=8)
    found = search_orders(problem, peaks.possible_lifetimes(), find_overruns, parameters)
    assert found.best is not None
    assert max(find_overruns(found.best.device_of)) <= 0


def search_here(_search, peaks: PeakProblem, known, _parameters, _seconds) -> Solution:
    """The search along the orders without a process of its own."""
    search = PeakSearch(peaks, known, 0, lambda _: None)
    search.run(float("inf"), 12)
    assert search.best is not None
    return Solution(status=Status.FEASIBLE, device_of=tuple(search.best.device_of.tolist()))


def test_what_is_nearly_better_is_not_lost_for_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first search comes to a placement that sends less and is above a cap by a byte, the
    second to one that fits and sends more: the third still begins at both, and what the prediction
    said is still off the cap."""
    graph, costs = _two_towers()
    problem = problem_of(graph, costs, "GPU:0:8800,GPU:1:8800,CPU:1GiB")
    units = len(graph.ops)
    near, apart = [0] * units, [number % 2 for number in range(units)]
    begun: list[tuple[list[Sequence[int]], tuple[int, ...]]] = []

    def search(_search, peaks: PeakProblem, known, _parameters, _seconds) -> Solution:
        begun.append((list(known), peaks.capacity))
        found = (near, apart)[min(len(begun) - 1, 1)]
        if len(begun) == 4:
            return Solution(status=Status.UNKNOWN)
        return Solution(status=Status.FEASIBLE, device_of=tuple(found[: peaks.units.unit_count]))

    def find_overruns(device_of: Sequence[int]) -> list[int]:
        return [1 if len(set(device_of)) == 1 else -1, -1, -1]

    monkeypatch.setattr(orders, "search_in_child", search)
    lifetimes = StepPeaks(graph, costs, problem).possible_lifetimes()
    found = search_orders(problem, lifetimes, find_overruns, SolverParameters())
    assert found.best is not None
    starts, capacity = begun[2]
    assert [len(set(each)) for each in starts] == [1, 2]
    assert capacity[0] < 8800


def test_the_same_placement_is_judged_once_and_searches_take_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A search that comes to the best again goes on: a short one near it, a longer one from
    nothing, in turns, where the clock ends them; one that comes to the proven least is the last."""
    monkeypatch.setattr(orders, "ORDERS", replace(orders.ORDERS, cycles=None))
    graph, costs = _two_towers()
    problem = problem_of(graph, costs, "GPU:0:8800,GPU:1:8800,CPU:1GiB")
    apart, together = [number % 2 for number in range(len(graph.ops))], [0] * len(graph.ops)
    judged: list[tuple[int, ...]] = []
    begun: list[float] = []

    def search(_search, peaks: PeakProblem, _known, _parameters, seconds) -> Solution:
        begun.append(seconds)
        found = peaks.units.project(apart if len(begun) < 4 else together)
        return Solution(status=Status.FEASIBLE, device_of=found)

    def find_overruns(device_of: Sequence[int]) -> list[int]:
        judged.append(tuple(device_of))
        return [-1, -1, -1]

    monkeypatch.setattr(orders, "search_in_child", search)
    lifetimes = StepPeaks(graph, costs, problem).possible_lifetimes()
    found = search_orders(problem, lifetimes, find_overruns, SolverParameters())
    assert found.best is not None
    assert found.best.device_of == tuple(together)
    assert judged == [tuple(apart), tuple(together)]
    assert begun[1] == pytest.approx(begun[3], rel=0.05)
    assert begun[2] > 3 * begun[1]


@pytest.mark.parametrize(("judging_seconds", "reserved"), [(2.0, 500), (0.5, 0)])
def test_with_time_for_few_predictions_gaps_are_reserved_at_once(
    judging_seconds: float, reserved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prediction says 500 bytes more of everything than is counted.  The first search leaves
    as much where predictions are slow.  Where nothing better than where it began is found the next
    one stays near, and the one after it draws anew."""
    graph, costs = _two_towers()
    problem = problem_of(graph, costs, "GPU:0:40000,GPU:1:40000,CPU:1GiB")
    hint = [number % 2 for number in range(len(graph.ops))]
    begun: list[PeakProblem] = []

    def search(_search, peaks: PeakProblem, _known, _parameters, _seconds) -> Solution:
        begun.append(peaks)
        if len(begun) == 4:
            return Solution(status=Status.UNKNOWN)
        return Solution(status=Status.FEASIBLE, device_of=peaks.units.project(hint))

    def find_overruns(device_of: Sequence[int]) -> list[int]:
        counted = begun_with.peaks(begun_with.units.project(device_of))
        caps = problem.capacity_bytes
        return [int(count + 500 - cap) for count, cap in zip(counted, caps, strict=True)]

    lifetimes = StepPeaks(graph, costs, problem).possible_lifetimes()
    caps = SearchCaps(problem)
    begun_with = to_peak_problem(problem, reduce_to_units(problem), lifetimes, caps.most)
    monkeypatch.setattr(orders, "search_in_child", search)
    search_orders(
        problem,
        lifetimes,
        find_overruns,
        SolverParameters(),
        best=Solution(status=Status.FEASIBLE, device_of=tuple(hint), value=value_of(problem, hint)),
        judging_seconds=judging_seconds,
    )
    assert [peaks.is_near for peaks in begun] == [False, True, False, True]
    first = caps.most[0] if not reserved else 40_000 - reserved
    assert begun[0].capacity[:2] == pytest.approx((first, first), abs=1)
    assert begun[1].capacity[:2] == pytest.approx((first, first), abs=10)


@pytest.mark.parametrize(("judging_seconds", "most"), [(60.0, 20.0), (20.0, 50.0)])
def test_most_of_the_time_is_for_searches_and_some_for_judging(
    judging_seconds: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 100 s as much is kept for the prediction of the plan; of what is left half where a
    prediction takes 60, and 50 s where it takes 20."""
    graph, costs = _two_towers()
    problem = problem_of(graph, costs, "GPU:0:28000,GPU:1:28000,CPU:1GiB")
    given: list[float] = []

    def search(_search, _peaks, _known, _parameters, seconds: float) -> Solution:
        given.append(seconds)
        return Solution(status=Status.UNKNOWN)

    monkeypatch.setattr(orders, "search_in_child", search)
    parameters = SolverParameters(time_limit_seconds=100.0)
    lifetimes = StepPeaks(graph, costs, problem).possible_lifetimes()
    search_orders(
        problem, lifetimes, lambda _: [0, 0, 0], parameters, judging_seconds=judging_seconds
    )
    first = max(0.45 * most, 1.0 + 1.4 * judging_seconds)
    assert given == [pytest.approx(min(first, most), abs=1.0)]


@pytest.mark.parametrize("fits", [True, False])
def test_what_comes_after_a_search_ends_by_the_deadline(
    monkeypatch: pytest.MonkeyPatch, virtual_time: VirtualTime, fits: bool
) -> None:
    """Predictions of 0.2 s, and searches that take all of the time that they are given."""
    graph, costs = _two_towers()
    problem = problem_of(graph, costs, "GPU:0:8800,GPU:1:8800,CPU:1GiB")

    def search(_search, peaks: PeakProblem, _known, _parameters, seconds: float) -> Solution:
        virtual_time.sleep(max(0.0, seconds))
        drawn = random.Random(seconds).choices(range(2), k=peaks.units.unit_count)
        return Solution(status=Status.FEASIBLE, device_of=tuple(drawn))

    def find_overruns(_: Sequence[int]) -> list[int]:
        virtual_time.sleep(0.2)
        return [-1 if fits else 1, -1, -1]

    monkeypatch.setattr(orders, "search_in_child", search)
    lifetimes = StepPeaks(graph, costs, problem).possible_lifetimes()
    parameters = SolverParameters(time_limit_seconds=2.0)
    search_orders(problem, lifetimes, find_overruns, parameters, judging_seconds=0.2)
    assert 0.2 <= virtual_time.now <= 2.0


@pytest.mark.parametrize("seed", [22, 59, 60])
def test_what_allocators_lose_is_found_room_for(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small steps of megabytes, whose caps hold for what TensorFlow's allocator needs: of all
    placements some are within the caps, the first that the search finds is above them, and one
    within them is found after it."""
    monkeypatch.setattr(orders, "search_in_child", search_here)
    graph, costs, problem = random_step(random.Random(seed), most_ops=7, unit=700_000)
    cluster = parse_cluster("2xGPU:1GiB,CPU:1GiB")  # links and rates; the caps are the problem's
    find_peaks = StepPeaks(graph, costs, problem, needs_on=cluster)
    tried: list[bool] = []

    def above_a_cap(*_: object, **__: object) -> Solution:
        return Solution(status=Status.UNKNOWN)

    def find_overruns(device_of: Sequence[int]) -> list[int]:
        peaks, caps = find_peaks(device_of), problem.capacity_bytes
        above = [peak.peak_bytes - cap for peak, cap in zip(peaks, caps, strict=True)]
        tried.append(max(above) <= 0)
        return above

    monkeypatch.setattr(rows, "solve", above_a_cap)
    solution = solve_under_peaks(
        problem,
        lambda device_of: [
            DevicePeak(peak_bytes=over + cap, moment={})
            for over, cap in zip(find_overruns(device_of), problem.capacity_bytes, strict=True)
        ],
        SolverParameters(work_limit=12, time_limit_seconds=60.0),
        find_lifetimes=find_peaks.possible_lifetimes,
    )
    assert not tried[0]
    within = [
        device_of
        for device_of in itertools.product(*problem.allowed)
        if max(find_overruns(device_of)) <= 0
    ]
    assert solution.status is Status.FEASIBLE
    assert solution.device_of in within


def test_what_is_counted_is_what_is_held() -> None:
    """The peaks of a placement, counted device by device, are those of what is held at all
    times."""
    for seed in range(30):
        rng = random.Random(seed)
        peaks = random_peaks(rng)
        device_of = [rng.randrange(DEVICES) for _ in range(UNITS)]
        along = held_by_definition(peaks, device_of).reshape(DEVICES, peaks.orders, LENGTH)
        kept = np.bincount(device_of, peaks.resident, minlength=DEVICES)
        assert peaks.peaks(device_of) == [
            highest_peak([*each], stays)
            for each, stays in zip(along.max(axis=2), kept, strict=True)
        ]
