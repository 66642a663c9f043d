"""The least transfer found under caps on peaks, along orders that are known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from placer.prediction.orders.possible_lifetimes import PossibleLifetimes
from placer.problem.placement_problem import PlacementProblem
from placer.solving.objectives.refining import value_of
from placer.solving.peaks.repair import repair
from placer.solving.peaks.schedule import FITTING_SCHEDULE, SCHEDULE, SCHEDULES
from placer.solving.peaks.search_caps import SearchCaps
from placer.solving.peaks.searches import SEARCHES, to_search
from placer.solving.process import clock
from placer.solving.process.child_search import search_in_child
from placer.solving.search.peak_problem import PeakProblem
from placer.solving.solution import Solution, SolverParameters, Status
from placer.solving.tidying import Overruns, tidy_within


def solve_along_orders(
    problem: PlacementProblem,
    lifetimes: PossibleLifetimes,
    find_overruns: Overruns,
    parameters: SolverParameters,
    deadline: float,
    hint: Sequence[int] | None,
    *,
    least_bytes: float = 0.0,
    best: Solution | None = None,
    known: Sequence[Sequence[int]] = (),
    judging_seconds: float = 0.0,
    is_once: bool = False,
) -> Solution | None:
    """A placement whose predicted peaks keep all caps, or else, of status ``UNKNOWN``, the nearest
    that was found until ``deadline`` (of ``clock.monotonic()``); ``None`` if there is none.  If a
    search crashed, the warning comes even without a placement.

    The search is over where a placement costs ``least_bytes``, what is proven to be the least.
    ``best`` is known to keep the caps, of the others ``known`` it is not.  A prediction takes
    ``judging_seconds``, or what it turns out to.  Where ``is_once``, what fits first is the answer.

    Where the prediction is above a cap, what it says beyond what the search counted there (the gaps
    of an allocator, say) is taken off that cap, and the next search stays near the placement that
    was the least above all caps together.
    """
    schedule = FITTING_SCHEDULE if is_once else SCHEDULES[problem.objective]
    starts = [*([] if hint is None else [hint]), *known]
    caps = SearchCaps(problem, is_wary=is_once and problem.spill == "auto")
    peaks = to_search(problem, lifetimes, caps.most)
    if not all(peaks.units.allowed):
        return None
    peaks = replace(peaks, least_bytes=least_bytes)
    begun_at = [peaks.units.project(start) for start in starts]
    tries = _Tries(problem, peaks, caps, find_overruns, begun_at, deadline, best)
    tries.judging_seconds, tries.schedule = judging_seconds, schedule
    if is_once or (parameters.work_limit is None and tries.is_late(schedule.few_judged)):
        tries.reserve_gaps(hint)
    is_first = is_once or parameters.work_limit is not None
    share = parameters.share(schedule.first_share)
    least_seconds = schedule.first_seconds + schedule.first_judged * judging_seconds
    search, is_cut = SEARCHES[problem.objective], False
    most_tries = schedule.most_tries if parameters.work_limit is None else SCHEDULE.most_tries
    for _ in range(most_tries):
        left = tries.seconds_left()
        seconds = min(left, max(least_seconds, share * left))
        if seconds <= (schedule.fewest_seconds if tries.seen else 0.0):
            break
        found = search_in_child(search, tries.peaks, tries.known, parameters, seconds)
        is_cut = is_cut or found.is_cut
        tries.crashes |= found.crashes
        if found.device_of is None:
            break
        if tries.is_known(found, begun_at):
            tries.seen.add(found.device_of)
            share = parameters.share(tries.go_on_from_known(hint))
            continue
        fits = tries.take(found)
        is_done = fits and (is_first or found.status is Status.OPTIMAL)
        if is_done or (tries.is_stuck and not is_once):
            break
        if not is_first:
            tries.mend_slight(parameters)
        # a search that missed its own caps was too short
        following = SCHEDULE if caps.is_missed and not fits else schedule
        share = parameters.share(tries.go_on(hint) if fits else following.next_share)
        # the same again: the search was too short to begin
        least_seconds = 2.0 * seconds if tries.is_stuck else following.least_seconds
    if not is_once:
        tries.repair()
    answer = tries.answer()
    return None if answer is None else replace(answer, is_cut=is_cut)


class _Tries:
    """Searches one after the other until the ``deadline``: ``peaks`` is what the next is about,
    ``known`` where it begins.

    ``best`` keeps the caps; ``nearest`` sends less and is the least above all of them together, and
    ``is_mendable`` says if that is not by much, or it leaves some device half empty.  A prediction
    took ``judging_seconds`` at most.
    """

    def __init__(
        self,
        problem: PlacementProblem,
        peaks: PeakProblem,
        caps: SearchCaps,
        find_overruns: Overruns,
        known: Sequence[Sequence[int]],
        deadline: float,
        best: Solution | None,
    ) -> None:
        self.problem, self.given, self.find_overruns = problem, peaks, find_overruns
        self.peaks, self.caps, self.known, self.deadline = peaks, caps, list(known), deadline
        self.sends_least = problem.objective == "transfer"
        self.known_value = None if best is None else best.value
        self.best = None if self.sends_least else best
        self.nearest: Solution | None = None
        self.crashes: dict[str, str] = {}
        self.is_mendable = False
        self.is_slight = False
        self.schedule = SCHEDULE
        self.least_over = 0
        self.judging_seconds = 0.0
        self.seen: set[tuple[int, ...]] = set()
        self.is_stuck = False
        self.is_retried = False

    @property
    def value(self) -> float:
        """Of the best."""
        return math.inf if self.best is None else self.best.value or 0.0

    def is_known(self, found: Solution, begun_at: Sequence[Sequence[int]]) -> bool:
        """Whether a placement of the units is known to keep the caps: the first search began there
        and it sends no less than what is known to, or it is the best, judged and tidied."""
        if self.known_value is not None and (found.value or 0.0) >= self.known_value:
            return found.device_of in begun_at
        if found.status is Status.OPTIMAL or self.best is None or self.best.device_of is None:
            return False
        return self.peaks.units.project(self.best.device_of) == found.device_of

    def seconds_left(self) -> float:
        """For the next search: the rest, no more than half unless one prediction takes longer, is
        for judging and tidying what it finds, and for mending what is nearest."""
        judged = self.schedule.judged_last + (self.schedule.judged_moves if self.is_mendable else 0)
        left = self.deadline - clock.monotonic()
        kept_back = min(0.5 * left, judged * self.judging_seconds)
        return left - max(kept_back, self.judging_seconds)

    def is_late(self, predictions: int = 1) -> bool:
        """Whether so many predictions would end after the deadline."""
        return clock.monotonic() + predictions * self.judging_seconds > self.deadline

    def judge(self, device_of: Sequence[int]) -> Sequence[int]:
        """By how much every device is predicted to be above its cap."""
        began = clock.monotonic()
        overruns = self.find_overruns(device_of)
        self.judging_seconds = max(self.judging_seconds, clock.monotonic() - began)
        return overruns

    def take(self, found: Solution) -> bool:
        """Whether a placement of the units keeps the caps; if not, the next search stays near, or
        all are stuck where the same comes again.  Debris may be left where it is late."""
        problem, units = self.problem, self.peaks.units
        assert found.device_of is not None
        is_new = found.device_of not in self.seen
        self.is_stuck = self.best is None and not is_new
        self.is_retried = False
        self.seen.add(found.device_of)
        device_of = units.expand(found.device_of)
        if self.sends_least:
            device_of, overruns = tidy_within(problem, device_of, self.judge, self.is_late)
        else:
            overruns = self.judge(device_of)
        above = sum(over for over in overruns if over > 0)
        solution = Solution(
            status=Status.UNKNOWN if above else Status.FEASIBLE,
            device_of=device_of,
            value=value_of(problem, device_of),
            warnings=found.warnings,
        )
        if not above:
            self._keep(solution)
        else:
            if self.nearest is None or above < self.least_over:
                self.nearest, self.least_over = solution, above
                self.is_slight = self.sends_least and above <= self._slight()
                is_roomy = self.sends_least and self._leaves_room(overruns)
                self.is_mendable = self.is_slight or is_roomy
            self.lower_caps(units.project(device_of), overruns, is_new=is_new)
        starts = [each for each in (self.nearest, self.best) if each is not None]
        self.known = [units.project(each.device_of or ()) for each in starts]
        return not above

    def answer(self) -> Solution | None:
        """The best placement, else the nearest, with the warning of a search that crashed."""
        found = self.best or self.nearest
        if found is None:
            if not self.crashes:
                return None
            found = Solution(status=Status.UNKNOWN)
        return replace(found, warnings=tuple((self.crashes | dict(found.warnings)).items()))

    def _keep(self, solution: Solution) -> None:
        """The best, and what is near to being better, if anything is."""
        if (solution.value or 0.0) < self.value:
            self.best = solution
        if self.nearest is None or (self.nearest.value or 0.0) >= self.value:
            self.nearest, self.is_mendable, self.is_slight = None, False, False

    def mend_slight(self, parameters: SolverParameters) -> None:
        """Mends what sends less than what fits, if it is slightly above a cap: nothing else is as
        near."""
        if self.known_value is not None and self.is_slight:
            self.repair(parameters.share(SCHEDULE.mending_share))

    def repair(self, share: float = 1.0) -> None:
        """Mends the nearest placement move by move, each judged by the prediction, for a share of
        the time, if it sends less than what is known to keep the caps."""
        if self.nearest is None or self.nearest.device_of is None or not self.sends_least:
            return
        most_bytes = min(self.known_value or math.inf, self.value)
        if (self.nearest.value or 0.0) >= most_bytes:
            return
        units, caps = self.given.units, self.problem.capacity_bytes
        until = clock.monotonic() + share * (self.deadline - clock.monotonic())
        # where nothing fits moves go on until the last moment, and a plan may be tidied after it
        judged = 1 if most_bytes == math.inf else SCHEDULE.judged_mended
        mended = repair(
            replace(self.given, capacity=caps),
            units.project(self.nearest.device_of),
            lambda device_of: self.judge(units.expand(device_of)),
            lambda: self.is_late(judged) or clock.monotonic() > until,
            most_bytes,
        )
        self.deadline += (SCHEDULE.judged_mended - judged) * self.judging_seconds
        self.take(replace(self.nearest, device_of=tuple(mended), warnings=()))

    def _slight(self) -> float:
        """What is not much above the caps."""
        caps = self.problem.capacity_bytes
        return SCHEDULE.slight * max(
            (caps[device] for device in self.problem.beside_host), default=0
        )

    def _leaves_room(self, overruns: Sequence[int]) -> bool:
        """Whether some device but the host is hardly used."""
        caps, empty = self.problem.capacity_bytes, 1.0 - SCHEDULE.roomy
        return any(overruns[device] < -empty * caps[device] for device in self.problem.beside_host)

    def reserve_gaps(self, device_of: Sequence[int] | None) -> None:
        """Takes what the prediction says of a placement beyond what is counted off the caps: where
        there is time for few predictions, searches would learn it too late."""
        if device_of is None:
            return
        counted = self.given.peaks(self.given.units.project(device_of))
        self.caps.reserve(counted, self.judge(device_of))
        self.peaks = replace(self.peaks, capacity=self.caps.now)

    def lower_caps(
        self, device_of_unit: Sequence[int], overruns: Sequence[int], *, is_new: bool
    ) -> None:
        """After a placement that is above some caps: the next search leaves room for what is beyond
        what is counted, and stays near."""
        least = None
        if is_new and not self.sends_least and self.best is not None:
            units = self.given.units
            least = self.given.peaks(units.project(self.best.device_of or ()))
        self.caps.lower(self.peaks.peaks(device_of_unit), overruns, least)
        self.peaks = replace(self.peaks, capacity=self.caps.now, positions=(), is_near=True)

    def go_on_from_known(self, hint: Sequence[int] | None) -> float:
        """After a search that came to what is known, as :meth:`go_on`.

        Where another objective is searched near a placement that is above a cap, another search of
        that kind is made, a longer one; only then is that placement given up.
        """
        is_above = not self.sends_least and self.nearest is not None and self.peaks.is_near
        if is_above and not self.is_retried:
            self.is_retried = True
            return SCHEDULE.next_share
        if is_above and self.best is not None:
            self.nearest = None
            self.known = [self.given.units.project(self.best.device_of or ())]
        return self.go_on(hint)

    def go_on(self, hint: Sequence[int] | None) -> float:
        """After a search that did not come out above a cap: the next has the room that the best, or
        else the ``hint``, leaves, and stays near; or draws anew, if this one stayed near.  Returns
        its share of the time that is left."""
        known = hint if self.best is None else self.best.device_of
        if known is None:
            return SCHEDULE.more_share
        if self.caps.now != self.caps.most:
            counted = self.given.peaks(self.given.units.project(known))
            self.caps.widen(counted, self.judge(known))
        is_near = not self.peaks.is_near
        positions = () if is_near else self.given.positions
        self.peaks = replace(
            self.peaks, capacity=self.caps.now, positions=positions, is_near=is_near
        )
        return SCHEDULE.near_share if is_near else SCHEDULE.more_share
