"""Placements under predicted peaks, against trying every placement."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from small_problems import problem_of, random_problem, search_exhaustively
from solving.virtual_time import VirtualTime

from placer.prediction.orders.possible_lifetimes import PossibleLifetimes
from placer.prediction.scoring import score
from placer.prediction.times.step_time import step_seconds
from placer.problem.device_peaks import DevicePeak
from placer.problem.placement_problem import PlacementProblem
from placer.solving.caps import orders, record, rows, staged_run, stages
from placer.solving.caps.predictions import Predictions
from placer.solving.caps.record import PeakRequest
from placer.solving.caps.reservation import level, spread
from placer.solving.caps.schedule import FITTING_ORDERS, ORDERS, SCHEDULE
from placer.solving.caps.staged_run import StagedRun
from placer.solving.caps.stages import PeakFinder, solve_under_peaks
from placer.solving.conflicts.conflict import explain_conflict
from placer.solving.process import clock
from placer.solving.process.deadline import Deadline
from placer.solving.search.peak_problem import PeakProblem
from placer.solving.solution import Solution, SolverParameters, Status
from placer.solving.solver import DEFAULT_SOLVER, value_of
from placer.solving.transfer import solving

QUICK = SolverParameters(time_limit_seconds=10.0, workers=1)


@pytest.fixture
def perfect_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solving, "search_in_child", search_exhaustively)


def peak_finder(
    problem: PlacementProblem, moments: Sequence[dict[int, int]], received_share: float = 0.0
) -> PeakFinder:
    """Peaks over ``moments``, plus a share of the bytes that a device receives."""

    def find_peaks(device_of: Sequence[int]) -> list[DevicePeak]:
        received = [0.0] * len(problem.device_names)
        for tensor in problem.tensors:
            for device in {device_of[op] for op in tensor.consumers} - {device_of[tensor.producer]}:
                received[device] += received_share * tensor.bytes
        return [
            max(
                (
                    DevicePeak(
                        peak_bytes=load(device, moment) + int(received[device]), moment=moment
                    )
                    for moment in moments
                ),
                key=lambda peak: peak.peak_bytes,
            )
            for device in range(len(problem.device_names))
            for load in [
                lambda device, moment: sum(
                    problem.resident_bytes[op] + moment.get(op, 0)
                    for op, place in enumerate(device_of)
                    if place == device
                )
            ]
        ]

    return find_peaks


def least_under_peaks(problem: PlacementProblem, find_peaks: PeakFinder) -> int | None:
    """The least transfer of all placements whose peaks fit."""
    without_moments = replace(problem, live_bytes=())
    values = []
    for device_of in itertools.product(*problem.allowed):
        scored = score(without_moments, device_of)
        peaks = find_peaks(device_of)
        if not scored.violations and all(
            peak.peak_bytes <= cap for peak, cap in zip(peaks, problem.capacity_bytes, strict=True)
        ):
            values.append(scored.transfer_bytes)
    return min(values, default=None)


@pytest.mark.usefixtures("perfect_child")
@pytest.mark.parametrize("received_share", [0.0, 0.3])
def test_what_is_claimed_is_true(received_share: float) -> None:
    """On 120 problems whose peaks are hidden from them: a placement never peaks over a cap,
    OPTIMAL is optimal, INFEASIBLE impossible, a bound below the optimum; with peaks that are
    moments only, the optimum or the proof that there is none is always found."""
    found = 0
    for seed in range(120):
        rng = random.Random(seed)
        problem = random_problem(seed, most_ops=6)
        problem = replace(
            problem,
            live_bytes=(),
            transient_bytes=(0,) * len(problem.device_names),
            capacity_bytes=tuple(cap + rng.randint(0, 8) for cap in problem.capacity_bytes),
        )
        hidden = [
            {op: rng.randint(0, 4) for op in range(len(problem.op_names)) if rng.random() < 0.5}
            for _ in range(3)
        ]
        find_peaks = peak_finder(problem, hidden, received_share)
        least = least_under_peaks(problem, find_peaks)
        solution = solve_under_peaks(problem, find_peaks, QUICK)
        if solution.status in (Status.OPTIMAL, Status.FEASIBLE):
            assert least is not None, seed
            assert solution.device_of is not None
            peaks = find_peaks(solution.device_of)
            for peak, cap in zip(peaks, problem.capacity_bytes, strict=True):
                assert peak.peak_bytes <= cap, seed
            assert solution.value is not None
            assert solution.value >= least, seed
            assert solution.lower_bound is None or solution.lower_bound <= least, seed
            found += 1
        if solution.status is Status.OPTIMAL:
            assert solution.value == least == solution.lower_bound, seed
        if solution.status is Status.INFEASIBLE:
            assert least is None, seed
        if received_share == 0.0:
            assert (solution.status is Status.INFEASIBLE) == (least is None), seed
            assert solution.value == least, seed
    assert found > 40


def nothing_found(*_: object) -> Solution:
    """A search along the orders that finds nothing."""
    return Solution(status=Status.UNKNOWN)


PAIRS = problem_of(
    resident=[2, 2, 2, 2], tensors=[(0, [1], 5), (2, [3], 5), (1, [2], 1)], capacity=[4, 4]
)


def test_a_placement_over_a_cap_is_never_feasible() -> None:
    """When no placement has peaks under the caps, the last one tried comes back as UNKNOWN with
    its peaks, and with the caps that it breaks."""
    peaks = [DevicePeak(peak_bytes=7, moment={}), DevicePeak(peak_bytes=4, moment={})]
    solution = solve_under_peaks(PAIRS, lambda _: peaks, replace(QUICK, time_limit_seconds=4.0))
    assert solution.status is Status.UNKNOWN
    assert solution.device_of is not None
    assert solution.warnings[-1] == (
        "peak_over_cap",
        "GPU:0 requires 7 B, 3 B more than its limit of 4 B",
    )


@pytest.mark.usefixtures("perfect_child")
def test_moments_learned_on_the_way_prove_infeasibility() -> None:
    """A moment that the problem does not know, and that no placement survives, ends the search
    with a proof and with caps that would hold it."""
    solution = solve_under_peaks(PAIRS, peak_finder(PAIRS, [{0: 9}]), QUICK)
    assert solution.status is Status.INFEASIBLE
    assert solution.unsolvable is not None
    conflict = explain_conflict(solution.unsolvable)
    assert (conflict.reason, conflict.needed_bytes) == ("too_large", 11)
    assert "--max-memory" in conflict.fixes[0].change


@pytest.mark.usefixtures("perfect_child")
def test_receive_buffers_are_reserved() -> None:
    """A device that peaks by what it receives gets less, the next placement is not its mirror
    image, and fits.

    0 --2--> 1 --3--> 2: cutting after 0 costs less, but then 1 has no room for what it reads.
    """
    problem = problem_of(
        resident=[4, 2, 4],
        tensors=[(0, [1], 2), (1, [2], 3)],
        capacity=[7, 7, 0],
        allowed=[[0, 1]] * 3,
    )

    def find_peaks(device_of: Sequence[int]) -> list[DevicePeak]:
        peaks = [0, 0, 0]
        for op, size in enumerate(problem.resident_bytes):
            peaks[device_of[op]] += size
        for tensor in problem.tensors:
            if device_of[tensor.consumers[0]] != device_of[tensor.producer]:
                peaks[device_of[tensor.consumers[0]]] += tensor.bytes
        return [DevicePeak(peak_bytes=peak, moment={}) for peak in peaks]

    solution = solve_under_peaks(problem, find_peaks, QUICK)
    assert solution.status is Status.FEASIBLE
    assert (solution.value, solution.lower_bound) == (3, 2)
    # each stage has left a row
    assert [stage.name for stage in solution.stages] == ["rows", "rows again"]
    first, last = solution.stages
    assert (first.name, first.searches, first.value, first.lower_bound) == ("rows", 1, None, 2)
    assert (last.name, last.value, last.lower_bound) == ("rows again", 3, 2)
    assert all(stage.why and stage.ended for stage in solution.stages)
    assert sum(stage.seconds for stage in solution.stages) <= solution.seconds


@pytest.mark.usefixtures("perfect_child")
def test_a_round_begins_only_if_the_prediction_after_it_fits_too(virtual_time: VirtualTime) -> None:
    """Predictions of three seconds, in a limit of five and a half, of a problem that would be
    tightened for ever: the limit holds."""
    problem = problem_of(
        resident=[2, 2, 2, 2], tensors=[(0, [1], 9), (1, [2], 1), (2, [3], 9)], capacity=[6, 6]
    )

    def slow(device_of: Sequence[int]) -> list[DevicePeak]:
        virtual_time.sleep(3.0)
        return [DevicePeak(peak_bytes=7, moment=dict.fromkeys(range(4), 1)) for _ in range(2)]

    solve_under_peaks(problem, slow, SolverParameters(time_limit_seconds=5.5, workers=1))
    assert 3.0 <= virtual_time.now <= 5.5


def test_the_least_transfer_is_asked_for_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The one that transfers least fits, the fastest placement receives too much for GPU:1: the
    first is the answer, with its step time as value and the bound of the other."""
    problem = replace(
        PAIRS,
        objective="step-time",
        seconds=((1.0, 1.0),) * 4,
        bandwidth=((5.0, 5.0),) * 2,
        latency=((0.0, 0.0),) * 2,
    )
    fast, frugal = (0, 1, 0, 1), (0, 0, 1, 1)
    asked = []

    def solve(problem: PlacementProblem, *_: object, solver: str, **__: object) -> Solution:
        if solver != DEFAULT_SOLVER:
            return Solution(status=Status.UNKNOWN, device_of=None, value=None, lower_bound=None)
        asked.append(problem.objective)
        device_of = frugal if problem.objective == "transfer" else fast
        value = value_of(problem, device_of)
        return Solution(status=Status.FEASIBLE, device_of=device_of, value=value, lower_bound=1.0)

    monkeypatch.setattr(rows, "solve", solve)
    monkeypatch.setattr(stages, "solve", solve)
    find_peaks = peak_finder(problem, [{}], received_share=0.3)
    parameters = replace(QUICK, time_limit_seconds=2.2)
    solution = solve_under_peaks(problem, find_peaks, parameters)
    assert asked[0] == "transfer"
    assert len(asked) > 2
    assert set(asked[1:]) == {"step-time"}
    assert solution.status is Status.FEASIBLE
    assert solution.device_of == frugal
    assert solution.value == pytest.approx(step_seconds(problem, frugal))
    assert solution.lower_bound == 1.0


@pytest.mark.parametrize("is_searched", [True, False])
def test_what_the_second_round_comes_to_may_be_above_a_cap(
    monkeypatch: pytest.MonkeyPatch, is_searched: bool
) -> None:
    """The first round for the step time fits.  Where a search by what devices hold would follow,
    the second has half of the time that is left, else all of it; what it comes to is above a cap
    and is searched on, from what fits."""
    problem = replace(
        PAIRS,
        objective="step-time",
        seconds=((1.0, 1.0), (1.0, 0.1)) * 2,
        bandwidth=((500.0, 500.0),) * 2,
        latency=((0.0, 0.0),) * 2,
    )
    fast, frugal = (0, 1, 0, 1), (0, 0, 1, 1)
    limits: list[float] = []
    searched: list[list[tuple[int, ...]]] = []

    def solve(
        problem: PlacementProblem, parameters: SolverParameters, *, solver: str, **_: object
    ) -> Solution:
        if solver != DEFAULT_SOLVER:
            return Solution(status=Status.UNKNOWN)
        if problem.objective == "step-time":
            limits.append(parameters.time_limit_seconds)
        device_of = fast if len(limits) > 1 else frugal
        value = value_of(problem, device_of)
        return Solution(status=Status.FEASIBLE, device_of=device_of, value=value, lower_bound=1.0)

    def search(
        _name: str, _peaks: PeakProblem, starts: list[tuple[int, ...]], *_: object
    ) -> Solution:
        searched.append(starts)
        return nothing_found()

    monkeypatch.setattr(rows, "solve", solve)
    monkeypatch.setattr(stages, "solve", solve)
    monkeypatch.setattr(orders, "search_in_child", search)
    find_lifetimes = lambda: PossibleLifetimes(orders=1, length=1)  # noqa: E731
    solution = solve_under_peaks(
        problem,
        peak_finder(problem, [{}], received_share=0.3),
        replace(QUICK, time_limit_seconds=9.0),
        find_lifetimes=find_lifetimes if is_searched else None,
    )
    assert solution.device_of == frugal
    assert limits[1] == pytest.approx(4.5 if is_searched else 9.0, abs=0.3)
    assert searched[:1] == ([[fast, frugal]] if is_searched else [])


@pytest.mark.usefixtures("perfect_child")
def test_what_needs_no_host_is_searched_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """op0 holds 8 of a GPU's 10 bytes, and 3 more that no row knows where a weight of 2 is beside
    it.  With 3 bytes reserved on each GPU it would only fit on the host, which costs 100; with less
    it is alone on a GPU, and the weights are on the other."""
    problem = replace(
        problem_of(
            resident=[8, 2, 2, 2],
            tensors=[(0, [1], 1), (0, [2], 2), (0, [3], 4)],
            capacity=[10, 10, 100],
            allowed=[[0, 1]] * 4,
            spillable=[True] * 4,
            spill="auto",
        ),
        slower_bytes=((0, 0, 100),) * 4,
    )

    def find_peaks(device_of: Sequence[int]) -> list[DevicePeak]:
        held = [
            sum(
                size
                for size, place in zip(problem.resident_bytes, device_of, strict=True)
                if place == device
            )
            for device in range(3)
        ]
        if device_of[0] < 2 and held[device_of[0]] > 8:
            held[device_of[0]] += 3
        return [DevicePeak(peak_bytes=size, moment={}) for size in held]

    monkeypatch.setattr(orders, "search_in_child", lambda *_: nothing_found())
    monkeypatch.setattr(staged_run, "repair", lambda _, starts, *__: list(starts[0]))
    solution = solve_under_peaks(
        problem,
        find_peaks,
        QUICK,
        find_lifetimes=lambda: PossibleLifetimes(orders=1, length=1),
    )
    assert solution.value == 7
    assert solution.device_of in ((0, 1, 1, 1), (1, 0, 0, 0))


def test_what_is_reserved_on_one_device_is_half_reserved_on_its_likes() -> None:
    """Of three devices of 16 bytes one has 8 reserved: it keeps a quarter of its capacity, the
    others get half of that at least; one of 5 bytes and the host keep what they had."""
    problem = problem_of(resident=[1], tensors=[], capacity=[16, 16, 16, 5, 16])
    given = replace(problem, host=4)
    tightened = replace(given, transient_bytes=(0, 8, 3, 1, 9))
    assert spread(tightened, given).transient_bytes == (2, 4, 3, 1, 9)


def test_what_is_reserved_on_one_device_may_be_reserved_on_its_likes() -> None:
    """All three devices of 16 bytes get the 8 of one, another keeps what it had, and the host."""
    problem = problem_of(resident=[1], tensors=[], capacity=[16, 16, 16, 5, 16])
    reserved = replace(problem, host=4, transient_bytes=(0, 8, 3, 1, 9))
    assert level(reserved).transient_bytes == (8, 8, 8, 1, 9)


def test_a_baseline_that_is_faster_and_fits_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search stays at one device, HEFT uses both; m-ETF would be faster than one device, and
    peaks over a cap however often it is asked."""
    problem = replace(
        problem_of(resident=[2] * 4, tensors=[(0, [1], 5), (2, [3], 5)], capacity=[9, 9]),
        objective="step-time",
        seconds=((1.0, 1.0),) * 4,
        bandwidth=((1e9, 1e9),) * 2,
        latency=((0.0, 0.0),) * 2,
    )
    places = {
        DEFAULT_SOLVER: (0, 0, 0, 0),
        "heft": (0, 0, 1, 1),
        "m-etf": (0, 1, 0, 1),
    }

    def solve(problem: PlacementProblem, *_: object, solver: str, **__: object) -> Solution:
        device_of = places.get(solver, (1, 1, 1, 1))
        value = value_of(problem, device_of)
        return Solution(status=Status.FEASIBLE, device_of=device_of, value=value, lower_bound=1.0)

    def find_peaks(device_of: Sequence[int]) -> list[DevicePeak]:
        size = 99 if tuple(device_of) == (0, 1, 0, 1) else 9
        return [DevicePeak(peak_bytes=size, moment={})] * 2

    monkeypatch.setattr(rows, "solve", solve)
    monkeypatch.setattr(stages, "solve", solve)
    solution = solve_under_peaks(problem, find_peaks, replace(QUICK, time_limit_seconds=2.2))
    assert solution.status is Status.FEASIBLE
    assert solution.device_of == places["heft"]
    assert solution.value == pytest.approx(step_seconds(problem, places["heft"]))


@pytest.mark.parametrize("layers_fit", [True, False])
def test_layers_that_fit_are_not_lost(monkeypatch: pytest.MonkeyPatch, layers_fit: bool) -> None:
    """Where everything else that is found peaks over a cap, or sends more, a large program gets its
    layers dealt out, as a person does it; if those do not fit either, nothing is made up."""
    count = SCHEDULE.least_layered_ops + 2
    problem = problem_of(
        resident=[1] * count,
        tensors=[(op, [op + 1], 5) for op in range(count - 1)],
        capacity=[count, count],
    )
    halves = tuple(int(op >= count // 2) for op in range(count))

    def solve(problem: PlacementProblem, *_: object, solver: str, **__: object) -> Solution:
        device_of = halves if solver == "layers" else tuple(op % 2 for op in range(count))
        value = value_of(problem, device_of)
        return Solution(status=Status.FEASIBLE, device_of=device_of, value=value, lower_bound=1.0)

    def find_peaks(device_of: Sequence[int]) -> list[DevicePeak]:
        fits = layers_fit and tuple(device_of) == halves
        return [DevicePeak(peak_bytes=count if fits else count + 1, moment={0: 1})] * 2

    monkeypatch.setattr(rows, "solve", solve)
    monkeypatch.setattr(stages, "solve", solve)
    monkeypatch.setattr(orders, "search_in_child", nothing_found)
    limit = replace(QUICK, time_limit_seconds=4.0)
    solution = solve_under_peaks(
        problem, find_peaks, limit, find_lifetimes=lambda: PossibleLifetimes(orders=1, length=1)
    )
    assert solution.status is (Status.FEASIBLE if layers_fit else Status.UNKNOWN)
    assert solution.device_of == halves  # the nearest, if it does not fit
    assert solution.lower_bound is None or solution.lower_bound <= 5


def test_layers_take_more_devices_where_few_are_above_their_caps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of a chain is within a cap, and a twentieth above it once predicted; nothing else that
    is found fits.  A person takes a third device."""
    count = SCHEDULE.least_layered_ops + 200
    problem = problem_of(
        resident=[1] * count,
        tensors=[(op, [op + 1], 5) for op in range(count - 1)],
        capacity=[count // 2 + 1] * 4 + [0],
        allowed=[[0, 1, 2, 3]] * count,
    )

    def solve(problem: PlacementProblem, *given: object, solver: str, **more: object) -> Solution:
        if solver == "layers":
            return real(problem, *given, solver=solver, **more)
        return Solution(status=Status.UNKNOWN)

    def find_peaks(device_of: Sequence[int]) -> list[DevicePeak]:
        loads = [device_of.count(device) for device in range(5)]
        return [DevicePeak(peak_bytes=load + load // 20, moment={0: 1}) for load in loads]

    real = rows.solve
    monkeypatch.setattr(rows, "solve", solve)
    monkeypatch.setattr(stages, "solve", solve)
    monkeypatch.setattr(orders, "search_in_child", nothing_found)
    limit = replace(QUICK, time_limit_seconds=4.0)
    lifetimes = PossibleLifetimes(orders=1, length=1)
    solution = solve_under_peaks(problem, find_peaks, limit, find_lifetimes=lambda: lifetimes)
    assert solution.status is Status.FEASIBLE
    assert solution.device_of is not None
    assert len(set(solution.device_of)) == 3
    assert solution.value == 10


def _chain(count: int) -> tuple[PlacementProblem, tuple[int, ...], tuple[int, ...]]:
    """One op after another that all fit one device: the problem, half of them on each of two
    devices, and all on the first."""
    problem = problem_of(
        resident=[1] * count,
        tensors=[(op, [op + 1], 5) for op in range(count - 1)],
        capacity=[count, count],
    )
    return problem, tuple(int(op >= count // 2) for op in range(count)), (0,) * count


def test_layers_that_fit_are_where_a_search_along_the_orders_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rounds that know sums find nothing above a cap there, and do not end the search for less."""
    problem, halves, together = _chain(count := SCHEDULE.least_layered_ops + 2)
    begun: list[object] = []

    def solve(problem: PlacementProblem, *_: object, **__: object) -> Solution:
        value = value_of(problem, halves)
        return Solution(status=Status.FEASIBLE, device_of=halves, value=value)

    def search(_name: str, peaks: PeakProblem, starts: list[object], *_: object) -> Solution:
        begun.extend(starts)
        return Solution(status=Status.FEASIBLE, device_of=peaks.units.project(together))

    monkeypatch.setattr(rows, "solve", solve)
    monkeypatch.setattr(stages, "solve", solve)
    monkeypatch.setattr(orders, "search_in_child", search)
    solution = solve_under_peaks(
        problem,
        lambda _: [DevicePeak(peak_bytes=count, moment={0: 1})] * 2,
        replace(QUICK, time_limit_seconds=4.0),
        find_lifetimes=lambda: PossibleLifetimes(orders=1, length=1),
    )
    assert begun == [halves]
    assert solution.device_of == together


def test_of_a_large_program_the_search_along_the_orders_begins_at_the_layers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sums of bytes are not searched before it: what comes of that in little time is worse, and the
    bound is sought beside."""
    problem, halves, together = _chain(count := SCHEDULE.least_layered_ops + 2)
    begun: list[object] = []

    def solve(*_: object, solver: str = "", **__: object) -> Solution:
        begun.append(solver)
        return Solution(status=Status.FEASIBLE, device_of=halves, value=5.0)

    def searched(_name: str, peaks: PeakProblem, starts: list[object], *_: object) -> Solution:
        begun.extend(starts)
        return Solution(status=Status.OPTIMAL, device_of=peaks.units.project(together))

    class Beside:
        def __init__(self, *given: object) -> None:
            begun.append(("bound", given[1]))

        def end(self, *, wait: bool) -> None:
            return None

    monkeypatch.setattr(rows, "solve", solve)
    monkeypatch.setattr(stages, "solve", solve)
    monkeypatch.setattr(staged_run, "BoundBeside", Beside)
    monkeypatch.setattr(orders, "search_in_child", searched)
    monkeypatch.setattr(record, "SCHEDULE", replace(SCHEDULE, least_ops_beside=count - 1))
    solution = solve_under_peaks(
        problem,
        lambda _: [DevicePeak(peak_bytes=count, moment={0: 1})] * 2,
        replace(QUICK, time_limit_seconds=4.0),
        find_lifetimes=lambda: PossibleLifetimes(orders=1, length=1),
    )
    assert begun[:3] == ["layers", ("bound", halves), halves]
    assert solution.device_of == together


def test_what_costs_nothing_is_not_searched_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With one accelerator layers are all on it: nothing sends less."""
    problem, _, together = _chain(count := SCHEDULE.least_layered_ops + 2)
    alone = replace(problem, allowed=((0,),) * count)
    begun: list[object] = []

    def solve(*_: object, solver: str = "", **__: object) -> Solution:
        begun.append(solver)
        return Solution(status=Status.OPTIMAL, device_of=together, value=0.0, lower_bound=0.0)

    def search(*_: object, **__: object) -> Solution:
        raise AssertionError("there is nothing to search")

    monkeypatch.setattr(rows, "solve", solve)
    monkeypatch.setattr(stages, "solve", solve)
    monkeypatch.setattr(orders, "search_in_child", search)
    monkeypatch.setattr(record, "SCHEDULE", replace(SCHEDULE, least_ops_beside=count - 1))
    solution = solve_under_peaks(
        alone,
        lambda _: [DevicePeak(peak_bytes=count, moment={0: 1})] * 2,
        replace(QUICK, time_limit_seconds=4.0),
        find_lifetimes=lambda: PossibleLifetimes(orders=1, length=1),
    )
    assert solution.status is Status.OPTIMAL
    assert begun == ["layers"]


def test_searches_leave_time_for_what_the_plan_is_predicted_with(
    monkeypatch: pytest.MonkeyPatch, virtual_time: VirtualTime
) -> None:
    """Of a large program a prediction takes a while, here 0.3 s: the search along the orders is to
    end so much before the limit, knows how long judging takes, and what the layers send."""
    count = SCHEDULE.least_layered_ops + 2
    problem = problem_of(
        resident=[1] * count,
        tensors=[(op, [op + 1], 5) for op in range(count - 1)],
        capacity=[count, count],
    )
    halves = tuple(int(op >= count // 2) for op in range(count))
    asked: list[tuple[float, PeakProblem]] = []

    def solve(problem: PlacementProblem, *_: object, **__: object) -> Solution:
        value = value_of(problem, halves)
        return Solution(status=Status.FEASIBLE, device_of=halves, value=value)

    def find_peaks(_: Sequence[int]) -> list[DevicePeak]:
        virtual_time.sleep(0.3)
        return [DevicePeak(peak_bytes=count, moment={0: 1})] * 2

    def search(
        _name: str, peaks: PeakProblem, _starts: object, _: object, seconds: float
    ) -> Solution:
        asked.append((clock.monotonic() + seconds, peaks))
        return nothing_found()

    monkeypatch.setattr(rows, "solve", solve)
    monkeypatch.setattr(stages, "solve", solve)
    monkeypatch.setattr(orders, "search_in_child", search)
    limit = replace(QUICK, time_limit_seconds=4.0)
    solve_under_peaks(
        problem, find_peaks, limit, find_lifetimes=lambda: PossibleLifetimes(orders=1, length=1)
    )
    ends, _ = asked[0]
    assert ends <= 4.0 - 0.3 - ORDERS.judged_last * 0.3


@pytest.mark.parametrize("is_found_beside", [True, False])
def test_what_is_near_a_first_plan_above_a_cap_is_judged_too(
    monkeypatch: pytest.MonkeyPatch, is_found_beside: bool
) -> None:
    """Found beside it by the same search, or a few moves away: no further search is needed."""
    problem = problem_of(
        resident=[1] * 6, tensors=[(op, [op + 1], 5 + op) for op in range(5)], capacity=[5, 5]
    )
    above, fits = (0, 0, 0, 1, 1, 1), (0, 0, 0, 0, 1, 1)
    judged: list[tuple[int, ...]] = []

    def search(_name: str, peaks: PeakProblem, *_: object) -> Solution:
        known = [peaks.units.project(each) for each in (above, fits)]
        others = (known[1],) if is_found_beside else ()
        return Solution(status=Status.FEASIBLE, device_of=known[0], others=others)

    def find_peaks(device_of: Sequence[int]) -> list[DevicePeak]:
        judged.append(tuple(device_of))
        high = 6 if tuple(device_of) == above else 4
        return [DevicePeak(peak_bytes=high, moment={0: 1})] * 2

    def mend(peaks: PeakProblem, *_: object) -> list[int]:
        return list(peaks.units.project(fits))

    monkeypatch.setattr(rows, "solve", lambda *_, **__: nothing_found())
    monkeypatch.setattr(stages, "solve", lambda *_, **__: nothing_found())
    monkeypatch.setattr(staged_run, "repair", mend)
    monkeypatch.setattr(orders, "search_in_child", search)
    solution = solve_under_peaks(
        problem,
        find_peaks,
        replace(QUICK, time_limit_seconds=3.0),
        find_lifetimes=lambda: PossibleLifetimes(orders=1, length=1),
    )
    assert judged[:2] == [above, fits]
    first = solution.stages[0]
    assert (first.name, first.searches, first.value) == ("first plan", 1, value_of(problem, fits))


def test_of_what_is_found_beside_that_is_judged_from_which_most_is_expected() -> None:
    """A chain of twenty ops in two parts, whose devices need three bytes more than counted: parts
    hardly less uneven than those above a cap are not judged, nor, once one fits, what costs
    more."""
    ops = 20
    problem = problem_of(
        resident=[1] * ops, tensors=[(op, [op + 1], 1) for op in range(ops - 1)], capacity=[15, 15]
    )
    peaks_of = PossibleLifetimes(orders=1, length=1)
    others = [tuple(int(op >= at) for op in range(ops)) for at in (14, 13, 12, 11, 10)]
    others += [tuple((op // 2) % 2 for op in range(ops)), tuple(op % 2 for op in range(ops))]
    judged: list[int] = []

    def find_peaks(device_of: Sequence[int]) -> list[DevicePeak]:
        judged.append(others.index(tuple(device_of)))
        ends = (ops - sum(device_of), sum(device_of))
        return [DevicePeak(peak_bytes=3 + end, moment={0: 1}) for end in ends]

    request = PeakRequest(
        problem=problem,
        predict=Predictions(find_peaks, (15, 15)),
        parameters=QUICK,
        find_lifetimes=lambda: peaks_of,
    )
    run = StagedRun(request)
    searched = Solution(
        status=Status.FEASIBLE, device_of=(0,) * 15 + (1,) * 5, others=tuple(others)
    )
    known, over = run.take_others(searched, [3, -7], Deadline(math.inf))
    assert run.found.best is not None
    assert run.found.best.device_of in others[2:5]
    assert known.device_of == run.found.best.device_of
    assert max(over) <= 0
    assert len(judged) == 1


@pytest.mark.parametrize("is_above", [False, True])
def test_equal_devices_are_named_by_their_first_use_where_that_fits(*, is_above: bool) -> None:
    """The first op is on the second of two equal devices; what is predicted of the other names
    decides."""
    problem = problem_of(
        resident=[1] * 4, tensors=[(op, [op + 1], 1) for op in range(3)], capacity=[3, 3]
    )

    def find_peaks(device_of: Sequence[int]) -> list[DevicePeak]:
        peak = 4 if is_above and device_of[0] == 0 else 2
        return [DevicePeak(peak_bytes=peak, moment={0: 1})] * 2

    request = PeakRequest(
        problem=problem,
        predict=Predictions(find_peaks, (3, 3)),
        parameters=QUICK,
        find_lifetimes=lambda: PossibleLifetimes(orders=1, length=1),
    )
    run = StagedRun(request)
    run.found.take(Solution(status=Status.FEASIBLE, device_of=(1, 1, 0, 0)), is_tidy=True)
    assert run.peaks.units.unit_count == 4
    run.name_devices()
    assert run.found.best is not None
    assert run.found.best.device_of == ((1, 1, 0, 0) if is_above else (0, 0, 1, 1))


@pytest.mark.parametrize("cycles", [None, 4])
def test_after_the_first_above_a_cap_placements_that_keep_more_free_are_sought(
    monkeypatch: pytest.MonkeyPatch, cycles: int | None
) -> None:
    """Under the same limits; only what is above a cap then lowers them.  With few cycles they are
    lowered at once."""
    problem = problem_of(
        resident=[1] * 6, tensors=[(op, [op + 1], 5 + op) for op in range(5)], capacity=[5, 5]
    )
    asked: list[tuple[float, tuple[int, ...]]] = []

    def search(_name: str, peaks: PeakProblem, *_: object) -> Solution:
        asked.append((peaks.spread, peaks.capacity))
        split = 2 + len(asked) % 3
        device_of = [int(op >= split) for op in range(6)]
        return Solution(status=Status.FEASIBLE, device_of=tuple(peaks.units.project(device_of)))

    def find_peaks(_device_of: Sequence[int]) -> list[DevicePeak]:
        return [DevicePeak(peak_bytes=6, moment={0: 1})] * 2

    monkeypatch.setattr(rows, "solve", lambda *_, **__: nothing_found())
    monkeypatch.setattr(stages, "solve", lambda *_, **__: nothing_found())
    monkeypatch.setattr(staged_run, "repair", lambda _, starts, *__: list(starts[0]))
    monkeypatch.setattr(orders, "search_in_child", search)
    solve_under_peaks(
        problem,
        find_peaks,
        replace(QUICK, time_limit_seconds=3.0, work_limit=cycles),
        find_lifetimes=lambda: PossibleLifetimes(orders=1, length=1),
    )
    (first, caps), (second, same), (_, lower) = asked[:3]
    assert (first, second) == (0.0, 0.0 if cycles else FITTING_ORDERS.spread)
    assert (same == caps) is (cycles is None)
    assert all(least < most for least, most in zip(lower, caps, strict=True))


def test_the_same_placement_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers that are above a cap, which rounds come to again and again: one prediction, and no
    further one to say by how much they are."""
    count = SCHEDULE.least_layered_ops + 2
    problem = problem_of(
        resident=[1] * count,
        tensors=[(op, [op + 1], 5) for op in range(count - 1)],
        capacity=[count, count],
    )
    halves = tuple(int(op >= count // 2) for op in range(count))
    judged: list[tuple[int, ...]] = []

    def solve(problem: PlacementProblem, *_: object, **__: object) -> Solution:
        value = value_of(problem, halves)
        return Solution(status=Status.FEASIBLE, device_of=halves, value=value)

    def find_peaks(device_of: Sequence[int]) -> list[DevicePeak]:
        judged.append(tuple(device_of))
        return [DevicePeak(peak_bytes=count + 1, moment={0: 1})] * 2

    monkeypatch.setattr(rows, "solve", solve)
    monkeypatch.setattr(stages, "solve", solve)
    monkeypatch.setattr(orders, "search_in_child", nothing_found)
    solution = solve_under_peaks(
        problem,
        find_peaks,
        replace(QUICK, time_limit_seconds=3.0),
        find_lifetimes=lambda: PossibleLifetimes(orders=1, length=1),
    )
    assert solution.status is Status.UNKNOWN
    assert judged.count(halves) == 1
