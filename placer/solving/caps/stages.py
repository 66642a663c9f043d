"""Caps on predicted peaks, not on sums: the stages of the search, one after the other.

A :class:`~placer.problem.placement_problem.PlacementProblem` limits resident and live bytes at some
moments.  What a device really peaks at also depends on what it receives and on when: only a
prediction of the whole placement tells.  So whatever a stage finds is judged by the prediction, and
what that says of it makes the next search better: by rows (:mod:`placer.solving.caps.rows`) or
along the orders of the step (:mod:`placer.solving.caps.orders`).
"""

from dataclasses import replace

from placer.prediction.scoring import score
from placer.problem.placement_problem import PlacementProblem
from placer.solving.baselines import BASELINES
from placer.solving.caps.orders import Orders
from placer.solving.caps.predictions import PeakFinder, Predictions
from placer.solving.caps.record import LifetimeFinder, PeakRequest
from placer.solving.caps.rows import Rows
from placer.solving.caps.schedule import SCHEDULE
from placer.solving.caps.staged_run import StagedRun, StageKind
from placer.solving.objectives.refining import value_of
from placer.solving.process import clock
from placer.solving.process.child_search import one_search_process
from placer.solving.process.deadline import Deadline
from placer.solving.solution import Solution, SolverParameters, Status
from placer.solving.solver import DEFAULT_SOLVER, solve
from placer.solving.transfer.solving import on_host

Reasons = tuple[str, str] | None
"""Why a stage began and how it ended; ``None`` if there was no reason to begin it."""


def solve_under_peaks(
    problem: PlacementProblem,
    find_peaks: PeakFinder,
    parameters: SolverParameters | None = None,
    *,
    solver: str = DEFAULT_SOLVER,
    find_lifetimes: LifetimeFinder | None = None,
) -> Solution:
    """The best placement found whose predicted peaks all stay within ``capacity_bytes``.

    With ``find_lifetimes`` placements are also searched by what devices would hold along the
    orders of the prediction.

    The time limit covers all stages; with a limit of work each ends after a few searches.  Status
    ``UNKNOWN`` with a placement means that this one, the nearest found, exceeds a cap; its warnings
    say by how much.
    """
    request = PeakRequest(
        problem=problem,
        predict=Predictions(find_peaks, problem.capacity_bytes),
        parameters=parameters or SolverParameters(),
        solver=solver,
        find_lifetimes=find_lifetimes,
    )
    search = StagedRun(request)
    with one_search_process():
        try:
            for kind in STAGES:
                search.run(kind)
            search.name_devices()
            return search.found.answer(clock.monotonic() - search.began)
        finally:
            search.end_bound(wait=False)


def _first_plan(search: StagedRun, deadline: Deadline) -> Reasons:
    """Where no accelerator holds all, a placement along the orders before anything is proven."""
    request = search.request
    if not request.is_divided:
        return None
    is_open = request.problem.spill == "auto"
    share = SCHEDULE.plan_share_with_host if is_open else SCHEDULE.plan_share
    ended = _along_orders(search, deadline, share, fits_first=True)
    found = search.found
    is_missed = found.searches > 1 or (found.missed and not deadline.is_counted)
    search.is_tight = found.best is not None and bool(is_missed)
    return "no accelerator holds all", ended


def _along_orders(
    search: StagedRun, deadline: Deadline, share: float, *, fits_first: bool = False
) -> str:
    """Searches along the orders, for a share of the time once these are known; of the least cost,
    whatever the objective, for a first fit."""
    peaks, found = search.fitting_peaks if fits_first else search.peaks, search.found
    if not all(peaks.units.allowed):
        return "an op has no device"
    problem = search.least_cost if fits_first else search.request.problem
    deadline = deadline.part(share)
    orders = Orders(problem, peaks, found, deadline, search.tried_caps, fits_first=fits_first)
    most = None if deadline.is_counted else orders.schedule.most_searches
    if fits_first and search.request.asks_least_cost and not deadline.is_counted:
        search.pursue(orders, deadline, 1, until_fits=True)
        if found.best is None:
            _mend(search, deadline.part(SCHEDULE.first_mend_share))
        if ended := found.ended(until_fits=True):
            return ended
    return search.pursue(orders, deadline, most, until_fits=fits_first)


def _layers(search: StagedRun, deadline: Deadline) -> Reasons:
    """Deals out the whole layers of a large program and makes them fit, unless they cost more than
    what fits: what is found after that is never worse than what a person does."""
    request, given = search.request, search.request.problem
    is_first, ended = search.found.best is None, ""
    if not request.is_layered:
        return None
    if not is_first:
        whole = solve(given, request.parameters, solver="layers").value
        if whole is None or whole >= search.found.value:
            return None
    part = _of_a_baseline(deadline.part(SCHEDULE.baseline_share))
    for share in SCHEDULE.layered_shares:  # from the second on, on more devices, less full
        if not ended or search.found.best is None:
            less = [int(share * cap) for cap in given.capacity_bytes]
            less[given.host] = given.capacity_bytes[given.host]
            less_room = replace(given, capacity_bytes=tuple(less))
            layers = Rows(less_room, "layers")
            layers.is_tidy = False
            most = SCHEDULE.baseline_searches if share == 1.0 else 1
            ended = search.pursue(layers, part, most, until_fits=is_first)
    return "the program is large, and nothing fits yet or layers cost less", ended


def _of_a_baseline(deadline: Deadline) -> Deadline:
    """The deadline of one baseline that is made to fit."""
    if deadline.is_counted:
        return deadline
    return Deadline(min(deadline.at, clock.monotonic() + SCHEDULE.baseline_seconds))


def _fit(search: StagedRun, deadline: Deadline) -> Reasons:
    """For another objective anything that fits, by the least cost: what receives less holds
    less."""
    request, found = search.request, search.found
    if not request.is_ours or request.asks_least_cost or found.best is not None:
        return None
    half = deadline.part(SCHEDULE.fit_share)
    first = half.part(_rows_share(request), _least_rows_seconds(request))
    ended = search.pursue(search.fitting_rows, first, 1, until_fits=True)
    if request.searches_orders and not found.ended(until_fits=True):
        ended = _along_orders(search, half, 1.0, fits_first=True)
    if not found.ended(until_fits=True):
        ended = search.pursue(search.fitting_rows, half, until_fits=True)
    search.rows.share_rows(search.fitting_rows)
    return "nothing fits yet", ended


def _baselines(search: StagedRun, deadline: Deadline) -> Reasons:
    """For another objective baselines that are better than what is known, made to fit."""
    request, found = search.request, search.found
    if not request.is_ours or request.asks_least_cost:
        return None
    others = SCHEDULE.rows_share_of_others if request.searches_orders else 1.0
    part = deadline.part(SCHEDULE.baseline_share * others)
    values: dict[str, float] = {}
    for name in TRIED:
        if not part.is_over():
            value = solve(request.problem, request.parameters, solver=name).value
            values |= {} if value is None else {name: value}
    for name in sorted(values, key=lambda name: values[name]):
        if values[name] >= found.value or part.is_over():
            break
        best, one = found.best, _of_a_baseline(part)
        rows = Rows(request.problem, name, fits_first=True)
        for _ in range(SCHEDULE.baseline_searches):
            if found.best is best and not one.is_over():
                search.pursue(rows, one, 1)
    found.is_cut = found.is_cut or part.is_over()
    ended = "its time is over" if part.is_over() else "the others are no better"
    return "they may be better, and are where searches begin", ended


TRIED = tuple(name for name in BASELINES if name != "tensorflow-default")
"""Those that look at the caps."""


def _rows(search: StagedRun, deadline: Deadline) -> Reasons:
    """A first search by rows, whose bound is proven; of another objective two, as the first may fit
    by chance.  Of the largest programs layers are a better beginning, of tight caps orders."""
    request, found, rows = search.request, search.found, search.rows
    if not request.is_ours or search.is_tight or (request.proves_beside and found.known):
        return None
    is_twice = request.searches_orders and not request.asks_least_cost
    share, ended = _rows_share(request), ""
    for _ in range(1 + is_twice):
        if not found.is_settled and not rows.is_missed:
            part = deadline.part(share, _least_rows_seconds(request))
            ended = search.pursue(rows, part, 1)
            share = SCHEDULE.next_share
    if request.searches_orders and request.asks_least_cost and rows.is_missed:
        ended = _reserving(search, deadline.part(SCHEDULE.reserving_share))
    return "the best placement within the limits, and a bound", ended


def _reserving(search: StagedRun, deadline: Deadline) -> str:
    """Searches by rows that reserve what the first one missed, with the host closed if that did
    not need it: else they would rather go there than keep a little more room on an accelerator."""
    rows, request, given = search.rows, search.request, search.request.problem
    assert rows.last is not None
    is_offloaded = any(
        device == given.host and given.host not in allowed
        for device, allowed in zip(rows.last, given.allowed, strict=True)
    )
    closed = Rows(given if is_offloaded else replace(given, spill="never"), request.solver)
    closed.share_rows(rows)
    closed.is_missed, closed.is_level = True, len(given.beside_host) > 2
    closed.reserve(rows.last, request.predict.overruns(rows.last))
    most = SCHEDULE.counted_searches // 2 if deadline.is_counted else None
    ended = search.pursue(closed, deadline, most)
    rows.share_rows(closed)
    return ended


def _rows_share(request: PeakRequest) -> float:
    if not request.searches_orders:
        return SCHEDULE.rows_share
    others = 1.0 if request.asks_least_cost else SCHEDULE.rows_share_of_others
    return SCHEDULE.rows_share_before_orders * others


def _least_rows_seconds(request: PeakRequest) -> float:
    is_first = request.searches_orders
    return SCHEDULE.least_first_seconds if is_first else SCHEDULE.least_rows_seconds


def _orders(search: StagedRun, deadline: Deadline) -> Reasons:
    """Searches along the orders, where rows alone say too little."""
    request, found = search.request, search.found
    is_fitted, is_missed = found.best is not None, search.rows.is_missed or search.is_tight
    if not request.searches_orders or not (request.asks_least_cost or is_fitted):
        return None
    if is_missed or not is_fitted:
        why = "trying to bring devices back under their limits" if is_missed else "nothing fits yet"
    elif request.is_layered:
        why = "the program is large: rows find little"
    elif request.is_divided:
        why = "no accelerator holds all"
    else:
        return None
    search.begin_bound()
    is_few = is_fitted and not is_missed and not request.is_layered
    share = SCHEDULE.orders_share_of_few if is_few else SCHEDULE.orders_share
    return why, _along_orders(search, deadline, share)


def _mend_soon(search: StagedRun, deadline: Deadline) -> Reasons:
    """Mends what costs clearly less than what fits: it is often only a little above a limit."""
    near = search.found.nearest_below(SCHEDULE.soon_below * search.found.value)
    return None if near is None else _mend(search, deadline.part(SCHEDULE.soon_share), near)


def _mend(search: StagedRun, deadline: Deadline, near: Solution | None = None) -> Reasons:
    """Mends, move by move, ``near`` or the nearest: above a cap, and cheaper than what fits."""
    request, found = search.request, search.found
    is_soon, near = near is not None, near or found.nearest
    if not (request.searches_orders and request.asks_least_cost) or near is None:
        return None
    best = found.best
    until, judged = deadline.part(SCHEDULE.mend_share), request.predict.longest_seconds
    is_cheap = near.value is not None and 2 * near.value < found.value
    is_last = bool(found.stages) and not is_soon  # the first plan is not late
    if is_cheap and is_last and not until.is_counted:
        least = clock.monotonic() + (1 + SCHEDULE.mended_judged) * judged
        until = Deadline(max(until.at, min(least, search.deadline.at + SCHEDULE.late_seconds)))
    search.mend(near, lambda: until.is_over(request.predict.usual_seconds))
    why = "nothing fits yet" if best is None else "trying to bring a cheaper one under its limits"
    return why, "no move helps" if found.best is best else "mended"


def _again(search: StagedRun, deadline: Deadline) -> Reasons:
    """Searches by rows in the rest of the time: they prove, and learn what they are above."""
    request, found = search.request, search.found
    if found.searches and deadline.is_over(SCHEDULE.least_rows_seconds):
        found.is_cut = True
        return None
    is_fitted = found.best is not None
    if deadline.is_counted and is_fitted and request.searches_orders and not search.rows.is_missed:
        return None  # they would do the same work again
    if request.is_ours and not request.asks_least_cost and not is_fitted:
        half = deadline.part(SCHEDULE.fit_share)
        search.pursue(search.fitting_rows, half, until_fits=True)
    if request.asks_least_cost:  # so much is for tidying what is found
        judged = SCHEDULE.tidied_judged * request.predict.longest_seconds
        deadline = deadline.before(max(judged, search.tidied_seconds))
    search.rows.reserves = True
    most = 1 if deadline.is_counted and is_fitted else None
    ended = search.pursue(search.rows, deadline, most)
    return "the placement found may be the best" if is_fitted else "nothing fits yet", ended


def _tidy(search: StagedRun, deadline: Deadline) -> Reasons:
    """No device is left with a handful of ops that could be elsewhere for nothing."""
    request, found = search.request, search.found
    if found.best is None or found.is_tidy or not request.asks_least_cost:
        return None
    search.tidy(deadline)
    return "stray ops may be left", "tidied"


def _host(search: StagedRun, _deadline: Deadline) -> Reasons:
    """Everything on the host, if that costs less than all that is known: no search need have come
    by it."""
    problem, found = search.request.problem, search.found
    device_of = on_host(problem, found.known[0] if found.known else None)
    if not search.request.is_ours or device_of in found.known:
        return None
    if value_of(problem, device_of) >= found.value:
        return None
    if score(replace(problem, live_bytes=()), device_of).violations:
        return None
    best = found.best
    found.take(Solution(status=Status.FEASIBLE, device_of=device_of), is_tidy=True)
    is_taken = found.best is not best
    return (
        "it costs less than the placement that fits",
        "it fits" if is_taken else "it is above a limit",
    )


def _prove(search: StagedRun, _deadline: Deadline) -> Reasons:
    """The rest of the time for the bound that is sought beside, unless nothing fits."""
    if search.beside is None:
        return None
    search.end_bound(wait=search.found.best is not None)
    return "a bound is sought beside", "its time is over"


STAGES = (
    StageKind("first plan", _first_plan),
    StageKind("layers", _layers),
    StageKind("fit", _fit),
    StageKind("baselines", _baselines),
    StageKind("rows", _rows),
    StageKind("mend", _mend_soon),
    StageKind("orders", _orders),
    StageKind("mend", _mend, comes_late=True),
    StageKind("tidy", _tidy),  # there may be no time for it later
    StageKind("rows again", _again),
    StageKind("tidy", _tidy, is_last=True),
    StageKind("host", _host, is_last=True),
    StageKind("prove", _prove),
)
