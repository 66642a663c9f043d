"""Caps on predicted peaks, not on sums: solve, predict, tighten, solve again.

A :class:`~placer.problem.placement_problem.PlacementProblem` limits resident and live bytes at some
moments.  What a device really peaks at also depends on what it receives and on when: only a
prediction of the whole placement tells.  Where it says that a device peaks above its cap, the
moment of that peak becomes a row of the problem, what the prediction saw beyond that row (receive
buffers, temporaries) is reserved on the device, and the problem is solved again.

A row overstates no prediction: whatever the placement, it asks for no more than what the device is
predicted to hold at that moment.  So a problem with more rows still has every placement that fits,
and what is proven about it holds.  Reserved bytes are a guess about placements not yet seen: while
some are reserved beyond the given ones, nothing is claimed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from placer.prediction.orders.possible_lifetimes import PossibleLifetimes
from placer.prediction.scoring import score
from placer.problem.device_peaks import DevicePeak
from placer.problem.placement_problem import PlacementProblem
from placer.solving.baselines import BASELINES
from placer.solving.caps.overruns import overrun_conflict, overrun_warnings
from placer.solving.caps.predictions import PeakFinder, Predictions
from placer.solving.caps.proofs import Proofs
from placer.solving.caps.reservation import loosen, spread, tighten, with_moments, with_rows
from placer.solving.caps.schedule import SCHEDULE
from placer.solving.objectives.refining import value_of
from placer.solving.peaks.solver import solve_along_orders
from placer.solving.process import clock
from placer.solving.process.child_search import one_process
from placer.solving.solution import Solution, SolverParameters, Status
from placer.solving.solver import DEFAULT_SOLVER, solve
from placer.solving.tidying import tidy_within
from placer.solving.transfer.stage import on_host

LifetimeFinder = Callable[[], PossibleLifetimes]
"""What tells the buffers of a step, whatever the placement."""

_LOG = logging.getLogger(__name__)

_TRIED = tuple(name for name in BASELINES if name != "tensorflow-default")
"""Those that look at the caps."""

BASELINE_SECONDS = 3.0
"""In which a baseline is made to fit."""


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
    orders of the prediction (:mod:`placer.solving.peaks`).

    The time limit covers all rounds; with a limit of work they end at the first placement that
    fits, or after a few.  Status ``UNKNOWN`` with a placement means that this one, the last tried,
    exceeds a cap; its warnings say by how much.
    """
    predict = Predictions(find_peaks, problem.capacity_bytes)
    rounds = _Rounds(problem, predict, parameters or SolverParameters(), solver)
    rounds.find_lifetimes = find_lifetimes if solver == DEFAULT_SOLVER else None
    is_large = len(problem.op_names) > SCHEDULE.least_ops_beside
    # with one accelerator little is to be decided, and sums of bytes decide it at once
    is_open = 2 * sum(len(devices) > 1 for devices in problem.allowed) > len(problem.allowed)
    rounds.proves_beside = is_large and is_open and rounds.is_layered() and not rounds.is_counted()
    with one_process():
        try:
            rounds.plan_first()
            rounds.try_layers()
            rounds.fit_by_transfer(SCHEDULE.first_fitting_share)
            rounds.try_baselines(SCHEDULE.baseline_share)
            while rounds.go_on():
                rounds.run()
            return rounds.answer()
        finally:
            rounds.proofs.end(wait=False)


class _Rounds:
    """The state of the loop.

    - ``given`` is the problem, ``tightened`` what the next round solves.
    - ``best`` is the best placement that fits, ``last`` the last one that did not, with its
      ``overruns``; ``nearest`` is what the last search along the orders came to that found none.
      ``untidied`` are layers dealt out as they are.
    - ``proofs`` has what is proven, ``infeasible`` the proof that no placement fits.
    - ``proves_beside``: a bound is sought beside, once there is something to prove; not for
      rounds that only begin those of another objective.
    - ``predict`` knows how long a prediction takes: the next round must leave as much.
    - ``transfer_rounds`` are those for the least transfer, which come first where the objective is
      another one.
    - ``is_cut``: the clock ended some part of it; ``rounds`` were begun.
    - ``spreads``: to find anything that fits matters more than to find the best, so what is
      reserved on one device is reserved on others too.
    """

    def __init__(
        self,
        problem: PlacementProblem,
        predict: Predictions,
        parameters: SolverParameters,
        solver: str,
    ) -> None:
        self.given = problem
        self.tightened = problem
        self.predict = predict
        self.parameters = parameters
        self.solver = solver
        self.started = clock.monotonic()
        self.proofs = Proofs(problem)
        self.crashes: dict[str, str] = {}
        self.lifetimes: PossibleLifetimes | None = None
        self.nearest: Solution | None = None
        self.untidied: Solution | None = None
        self.infeasible: Solution | None = None
        self.proves_beside = False
        self.best: Solution | None = None
        self.last: Solution | None = None
        self.overruns: dict[int, DevicePeak] = {}
        self.loosened = 0
        self.finished = False
        self.is_cut = False
        self.rounds = 0
        self.transfer_rounds: _Rounds | None = None
        self.spreads = problem.objective != "transfer"
        self.find_lifetimes: LifetimeFinder | None = None
        is_searched = problem.objective != "throughput"
        self.searches_left = SCHEDULE.most_searches if is_searched else 0

    @property
    def value(self) -> float | None:
        """Of the best placement that fits."""
        return None if self.best is None else self.best.value

    def seconds_left(self) -> float:
        """Of the time limit of all rounds together; of a large program without those for what the
        plan is predicted with in the end, which is as long as any prediction."""
        kept_back = self.predict.longest_seconds if self.is_layered() else 0.0
        return self.started + self.parameters.time_limit_seconds - kept_back - clock.monotonic()

    def go_on(self) -> bool:
        """Whether another round begins; the first one always does."""
        if not self.rounds and self.infeasible is None:
            return True
        if self.finished or (self.is_counted() and self.rounds >= SCHEDULE.counted_rounds):
            return False
        is_late = self.seconds_left() < SCHEDULE.least_round_seconds + self.predict.longest_seconds
        self.is_cut = self.is_cut or is_late
        return not is_late

    def is_counted(self) -> bool:
        """Whether work ends the rounds, and not the clock."""
        return self.parameters.work_limit is not None

    def run(self) -> None:
        """One round: solve, predict, and keep the placement or tighten."""
        self.rounds += 1
        known = self.best or self.last
        if self.rounds == 1 and self.proves_beside and known is not None:
            # layers are a better beginning than what sums of bytes give in as little time
            self.bound_beside(known)
            self.search_along_orders(known.device_of)
            return
        solution = self.solve()
        self.bound_beside(solution)
        if solution.device_of is None:
            is_open = solution.status is not Status.INFEASIBLE
            if is_open and self.search_along_orders(None):
                return
            self.loosen(solution)
            return
        if self.best is not None and self.is_layered() and self.sends_more(solution):
            self.search_along_orders(self.best.device_of)
            return
        hint = solution.device_of
        self.overruns = self.predict.overruns(hint)
        if not self.overruns:
            self.keep(solution)
            if self.is_layered() and not self.finished and not self.spreads:
                self.search_along_orders(hint)
            return
        self.last = solution
        if self.begin_at(solution):
            return
        self.tightened = tighten(
            self.tightened, solution.device_of, self.overruns, cautious=self.loosened > 0
        )
        if self.spreads:
            self.tightened = spread(self.tightened, self.given)
        self.fit_by_transfer(SCHEDULE.fitting_share)

    def begin_at(self, solution: Solution) -> bool:
        """Whether a search by what devices hold, begun at a placement that is above a cap, finds
        what fits; for another objective than transfer it may be known, and better is searched."""
        assert solution.device_of is not None
        if self.given.objective == "transfer":
            return self.search_along_orders(solution.device_of)
        if self.best is None:
            return False
        return self.search_along_orders(self.best.device_of, [solution.device_of])

    def bound_beside(self, solution: Solution) -> None:
        """Begins the search for a bound where the first round leaves much of it open."""
        known = (self.best or solution).device_of
        is_open = solution.status in (Status.FEASIBLE, Status.UNKNOWN)
        if self.proves_beside and is_open and known is not None:
            self.proofs.seek_beside(known, self.value, self.parameters, self.seconds_left())

    def sends_more(self, solution: Solution) -> bool:
        """Whether what was found need not be judged, since it sends more than what fits."""
        return self.value is not None and (solution.value or 0) > self.value

    def keep(self, solution: Solution) -> None:
        """A placement that fits; of layers dealt out and another that is as good, that one."""
        _LOG.debug("a placement that fits: %s", solution.value)
        is_known = self.best is not None and self.best is not self.untidied
        both = (self.best, solution) if is_known else (solution, self.best)
        self.best = better(*both)
        self.finished = self.is_counted() or solution.value == solution.lower_bound

    def try_host(self) -> None:
        """Takes all on the host, where it may be there and fits, if it costs less than whatever is
        known to fit: no search need have come by it."""
        if self.solver != DEFAULT_SOLVER or self.infeasible is not None:
            return
        device_of = on_host(self.given, None if self.last is None else self.last.device_of)
        value = value_of(self.given, device_of)
        is_dearer = self.value is not None and value >= self.value
        if is_dearer or score(replace(self.given, live_bytes=()), device_of).violations:
            return
        if not self.predict.overruns(device_of):
            self.best = Solution(status=Status.FEASIBLE, device_of=device_of, value=value)

    def searches_orders(self) -> bool:
        """Whether a search by what devices hold may come."""
        return self.find_lifetimes is not None and self.searches_left > 0

    def search_along_orders(
        self, hint: Sequence[int] | None, known: Sequence[Sequence[int]] = ()
    ) -> bool:
        """Whether a search by what devices hold found what fits; it is made until it has, twice at
        most."""
        if self.find_lifetimes is None or not self.searches_orders():
            return False
        self.searches_left -= 1
        left = self.seconds_left()
        if self.best is not None and self.best is self.untidied:
            # for tidying it, if nothing is better
            left -= min(self.predict.longest_seconds, SCHEDULE.tidying_share * left)
        if self.lifetimes is None:
            self.lifetimes = self.find_lifetimes()
        for other in (self.best, self.nearest):
            if other is not None and other.device_of is not None and other.device_of != hint:
                known = [*known, other.device_of]
        found = solve_along_orders(
            self.given,
            self.lifetimes,
            self.predict.bytes_over,
            self.parameters,
            clock.monotonic() + self.parameters.share(SCHEDULE.orders_share) * left,
            hint,
            least_bytes=self.proofs.least_bytes(),
            best=self.best,
            known=known,
            is_once=self.spreads and self.given.objective == "transfer",
            judging_seconds=self.predict.longest_seconds,
        )
        late = self.seconds_left() < SCHEDULE.least_round_seconds or not self.is_counted()
        self.is_cut = self.is_cut or (late if found is None else found.is_cut)
        if found is None:
            return False
        self.note_crash(found)
        if found.device_of is None:
            return False
        found = replace(found, value=value_of(self.given, found.device_of))
        if found.status is Status.UNKNOWN:
            self.nearest = found
            return False
        self.tightened = with_moments(self.tightened, self.overruns.values())
        self.overruns = {}
        self.searches_left = 0
        self.keep(found)
        return True

    def is_second(self) -> bool:
        """Whether this is the second round for another objective than transfer, with a search along
        the orders to come if it ends above a cap: the first may have fitted by chance."""
        return self.spreads and self.rounds == 2 and self.searches_orders()

    def solve(self) -> Solution:
        """The tightened problem, for its share of the time."""
        left = self.seconds_left() - self.predict.longest_seconds
        # how long: the first round is to prove a bound, and what fits already is only improved
        share = SCHEDULE.next_share
        if self.best is not None and not self.overruns and not self.is_second():
            share = 1.0
        least = SCHEDULE.least_round_seconds
        if not self.proofs.solutions:
            share = SCHEDULE.first_share
            if self.searches_orders():
                share, least = SCHEDULE.first_share_of_orders, SCHEDULE.least_first_seconds
                if self.proves_beside:
                    share = SCHEDULE.first_share_beside
                elif self.spreads:
                    share *= SCHEDULE.beside_orders
        share = self.parameters.share(share)
        # from the best placement known
        known = self.best or self.last
        solution = solve(
            self.tightened,
            replace(
                self.parameters,
                time_limit_seconds=max(0.0, min(left, max(least, share * left))),
                to_prove=self.is_layered(),
            ),
            hint=None if known is None else known.device_of,
            solver=self.solver,
        )
        self.is_cut = self.is_cut or solution.is_cut
        self.note_crash(solution)
        if self.is_exact() and solution.status is not Status.INFEASIBLE:
            self.proofs.solutions.append(solution)
        return solution

    def note_crash(self, found: Solution) -> None:
        """A search that crashed is told of in the end, and CP-SAT, if it did, is not used again."""
        self.crashes |= found.crashes
        self.parameters = self.parameters.after(found)

    def fit_by_transfer(self, share: float) -> None:
        """For another objective than transfer: the least transfer under the same rows for a share
        of the time, until a placement fits.  What receives less holds less."""
        if self.given.objective == "transfer" or self.solver != DEFAULT_SOLVER or self.best:
            return
        if self.transfer_rounds is None:
            transfer = replace(self.given, objective="transfer")
            self.transfer_rounds = _Rounds(transfer, self.predict, self.parameters, self.solver)
            self.transfer_rounds.spreads = True
            self.transfer_rounds.find_lifetimes = self.find_lifetimes
        rounds = self.transfer_rounds
        spent = clock.monotonic() - rounds.started
        seconds = self.parameters.share(share) * max(0.0, self.seconds_left())
        rounds.parameters = replace(self.parameters, time_limit_seconds=spent + seconds)
        rounds.tightened = with_rows(rounds.tightened, self.tightened.live_bytes)
        while rounds.best is None and rounds.go_on():
            rounds.run()
        self.is_cut = self.is_cut or rounds.is_cut
        self.crashes |= rounds.crashes
        self.tightened = with_rows(self.tightened, rounds.tightened.live_bytes)
        self.infeasible, self.finished = rounds.infeasible, rounds.infeasible is not None
        if rounds.best is not None and rounds.best.device_of is not None:
            value = value_of(self.given, rounds.best.device_of)
            self.best = replace(rounds.best, status=Status.FEASIBLE, value=value, lower_bound=None)

    def try_baselines(self, share: float) -> None:
        """For another objective than transfer: the baselines that are better than the best so far,
        made to fit, for a share of the time."""
        if self.given.objective == "transfer" or self.solver != DEFAULT_SOLVER or self.finished:
            return
        if self.searches_orders():
            share *= SCHEDULE.beside_orders
        seconds = self.parameters.share(share) * max(0.0, self.seconds_left())
        until = clock.monotonic() + seconds
        limit = self.parameters
        if not self.is_counted():
            limit = replace(limit, time_limit_seconds=BASELINE_SECONDS)
        values = {}
        for name in _TRIED:
            found = solve(self.given, limit, solver=name) if clock.monotonic() < until else _UNKNOWN
            if found.value is not None:
                values[name] = found.value
        for name in sorted(values, key=lambda name: values[name]):
            known = self.value
            self.is_cut = self.is_cut or clock.monotonic() > until
            if clock.monotonic() > until or (known is not None and values[name] >= known):
                return
            self.try_baseline(name, limit)

    def plan_first(self) -> None:
        """Where no accelerator holds all, a placement along the orders before anything is proven;
        what fits is the answer until something better is found."""
        if self.given.objective != "transfer" or self.find_lifetimes is None:
            return
        moments = self.given.live_bytes or ({},)
        held = sum(self.given.resident_bytes) + max(sum(each.values()) for each in moments)
        caps = self.given.capacity_bytes
        if held <= max((caps[device] for device in self.given.beside_host), default=held):
            return
        self.lifetimes = self.find_lifetimes()
        share = SCHEDULE.first_plan_share
        if self.given.spill == "auto":
            share = SCHEDULE.first_share_with_host
        found = solve_along_orders(
            self.given,
            self.lifetimes,
            self.predict.bytes_over,
            self.parameters,
            clock.monotonic() + share * self.seconds_left(),
            None,
            is_once=True,
            judging_seconds=self.predict.longest_seconds,
        )
        if found is None or found.device_of is None:
            return
        self.note_crash(found)
        if found.status is Status.UNKNOWN:
            self.nearest = found
        else:
            self.best = replace(found, value=value_of(self.given, found.device_of))

    def try_layers(self) -> None:
        """Where the least transfer of a large program is asked for, whole layers dealt out and made
        to fit: what is found after that is never worse than what a person does."""
        if self.given.objective != "transfer" or self.solver != DEFAULT_SOLVER:
            return
        if self.is_layered() and self.best is None:
            seconds = min(BASELINE_SECONDS, SCHEDULE.baseline_share * self.seconds_left())
            limit = self.parameters
            if not self.is_counted():
                limit = replace(limit, time_limit_seconds=seconds)
            self.try_baseline("layers", limit)
            self.try_more_layers(limit)
            self.untidied = self.best

    def try_more_layers(self, limit: SolverParameters) -> None:
        """Where layers on as few devices as hold their bytes come out above some caps: layers that
        fill less of each, and so are on more devices."""
        given = self.given
        for share in SCHEDULE.layered_shares:
            spent = clock.monotonic() - self.started
            is_late = spent > SCHEDULE.baseline_share * self.parameters.time_limit_seconds
            if self.best is not None or (is_late and not self.is_counted()):
                return
            less = [int(share * cap) for cap in given.capacity_bytes]
            less[given.host] = given.capacity_bytes[given.host]
            found = solve(replace(given, capacity_bytes=tuple(less)), limit, solver="layers")
            if found.device_of is None:
                return
            if not self.predict.overruns(found.device_of):
                self.best = found

    def is_layered(self) -> bool:
        """Whether placements are found along the orders of a large program, and rounds prove."""
        is_large = len(self.given.op_names) > SCHEDULE.least_layered_ops
        is_transfer = self.given.objective == "transfer"
        return is_large and is_transfer and self.find_lifetimes is not None

    def tidied(self, best: Solution) -> Solution:
        """``best`` without debris if it keeps the caps so; what the solver found has none."""
        if best is not self.untidied or best.device_of is None:
            return best
        judged = self.predict.longest_seconds

        def is_late(predictions: int) -> bool:
            return self.seconds_left() < predictions * judged and not self.is_counted()

        device_of, _ = tidy_within(self.given, best.device_of, self.predict.bytes_over, is_late)
        return replace(best, device_of=device_of, value=value_of(self.given, device_of))

    def try_baseline(self, name: str, limit: SolverParameters) -> None:
        """Makes a baseline fit and takes it if it is better than what is known; if it does not, the
        first round begins there."""
        rounds = _Rounds(self.given, self.predict, limit, name)
        for _ in range(SCHEDULE.baseline_rounds):
            if rounds.best is None and rounds.go_on():
                rounds.run()
        self.is_cut = self.is_cut or rounds.is_cut
        if rounds.best is not None:
            self.best = better(self.best, rounds.best)
        elif self.best is None and self.last is None:
            self.last, self.overruns = rounds.last, rounds.overruns

    def is_exact(self) -> bool:
        """Whether nothing is reserved on a guess, so that proofs hold for the given problem."""
        return (
            self.tightened.transient_bytes == self.given.transient_bytes
            and self.tightened.allowed == self.given.allowed
        )

    def loosen(self, solution: Solution) -> None:
        """No placement: end, or retry with half of what was reserved, at last with nothing."""
        if self.is_exact():
            self.finished = True
            if solution.status is Status.INFEASIBLE:
                self.infeasible = solution
            return
        self.loosened += 1
        is_enough = self.best is not None and self.given.objective == "transfer"
        self.finished = is_enough or self.loosened > SCHEDULE.most_loosened
        self.tightened = loosen(
            self.tightened,
            self.given,
            share=0.5 if self.loosened % SCHEDULE.loosened_fully else 0.0,
        )

    def answer(self) -> Solution:
        """The best placement with what is proven, or why there is none; a search that crashed is
        told of, whichever round it was in."""
        if self.best is not None:
            self.best = self.tidied(self.best)  # while there is time
        self.try_host()
        self.proofs.end(wait=self.value is not None and self.value > self.proofs.least_bytes())
        found = self.found()
        return replace(
            found,
            seconds=clock.monotonic() - self.started,
            is_cut=self.is_cut,
            warnings=tuple((self.crashes | dict(found.warnings)).items()),
        )

    def found(self) -> Solution:
        """The answer without how it was come by."""
        if self.best is not None:
            return self.proofs.proven(self.best)
        if self.infeasible is not None:
            return self.infeasible
        self.take_nearest()
        if self.last is None:
            return self.proofs.solutions[-1] if self.proofs.solutions else _UNKNOWN
        return replace(
            self.last,
            status=Status.UNKNOWN,
            lower_bound=self.proofs.bound(),
            warnings=(*self.last.warnings, *overrun_warnings(self.given, self.overruns)),
            conflict=overrun_conflict(self.given, self.overruns),
        )

    def take_nearest(self) -> None:
        """Of the last placements of rounds and of searches along the orders the one that is less
        above the caps."""
        if self.nearest is None or self.nearest.device_of is None:
            return
        caps, overruns = self.given.capacity_bytes, self.predict.overruns(self.nearest.device_of)

        def above(found: Mapping[int, DevicePeak]) -> int:
            return sum(peak.peak_bytes - caps[device] for device, peak in found.items())

        if self.last is None or above(overruns) < above(self.overruns):
            self.last, self.overruns = self.nearest, overruns


def better(known: Solution | None, found: Solution | None) -> Solution | None:
    """The one that costs less, else the first."""
    if known is None or found is None:
        return known or found
    return min(known, found, key=lambda solution: solution.value or 0)


_UNKNOWN = Solution(status=Status.UNKNOWN)
