"""Searches along the orders of a step, each judged by the prediction.

Where the prediction is above a cap, what it says beyond what the search counted there (what an
allocator loses to gaps, say) is taken off that cap, and the next search stays near what is known.
Once something fits, searches stay near it and begin from nothing in turns.
"""

from collections.abc import Sequence
from dataclasses import replace

from placer.problem.placement_problem import PlacementProblem
from placer.solving.caps.record import Record
from placer.solving.caps.schedule import FITTING_ORDERS, ORDERS, QUICK_ORDERS
from placer.solving.peaks.search_caps import SearchCaps, TriedCaps
from placer.solving.process.child_search import search_in_child
from placer.solving.process.compiling import SEARCHES
from placer.solving.process.deadline import Deadline
from placer.solving.reduction.equal_devices import interchangeable_devices, numbered_by_use
from placer.solving.search.peak_problem import PeakProblem
from placer.solving.solution import Solution, SolverParameters


class Orders:
    """Searches of ``problem``, which is ``given`` in units; ``caps`` are those that the next one
    keeps, which ``is_near`` what is known or begins from nothing, and has a ``share`` of the time,
    ``least_seconds`` of it at least.

    Where ``fits_first``, anything that fits is the answer.
    """

    is_tidy = False

    def __init__(
        self,
        problem: PlacementProblem,
        given: PeakProblem,
        found: Record,
        deadline: Deadline,
        tried: TriedCaps,
        *,
        fits_first: bool = False,
    ) -> None:
        self.problem, self.given = problem, given
        self.tidies = found.request.asks_least_cost
        quick = QUICK_ORDERS if problem.objective == "step-time" else ORDERS
        self.schedule = FITTING_ORDERS if fits_first else quick
        self.caps = SearchCaps(problem, tried, is_wary=fits_first and problem.spill == "auto")
        self.seen: set[tuple[int, ...]] = set()
        self.is_near, self.spread = False, 0.0
        judged = found.request.predict.longest_seconds
        self.share = self.schedule.first_share
        self.least_seconds = self.schedule.first_seconds + self.schedule.first_judged * judged
        # with time for few predictions, searches would learn too late what they say beyond counting
        is_short = not deadline.is_counted and deadline.is_over(self.schedule.few_judged * judged)
        if found.known and (fits_first or is_short):
            device_of = found.known[-1]  # what fits, if anything does
            self.caps.reserve(self._counted(device_of), self._over(found, device_of))

    @property
    def least_left_seconds(self) -> float:
        """With less left, no search follows."""
        return self.schedule.fewest_seconds

    def search(self, found: Record, deadline: Deadline) -> Solution | None:
        """The next search; ``None`` if there is no time for one.  What it finds is to be judged by
        the deadline, for which up to half of the time is kept back."""
        judged = self.schedule.judged_last * found.request.predict.longest_seconds
        time = deadline.before(min(0.5 * deadline.left(), judged))
        parameters, share = self._parameters(found), self.share
        if parameters.work_limit is not None:
            share = max(share, self.schedule.counted_share)
        seconds = time.part(share, self.least_seconds).left()
        if seconds <= (self.schedule.fewest_seconds if self.seen else 0.0):
            return None
        peaks = replace(
            self.given,
            capacity=self.caps.now,
            least_bytes=(found.bound or 0.0) if found.request.asks_least_cost else 0.0,
            positions=() if self.is_near else self.given.positions,
            is_near=self.is_near,
            spread=self.spread,
        )
        units = self.given.units
        starts = [units.project(each) for each in found.known]
        name = SEARCHES[self.problem.objective]
        searched = search_in_child(name, peaks, starts, parameters, seconds)
        if searched.device_of is None:
            return searched
        equal = interchangeable_devices(units, lambda device: peaks.capacity[device])
        found_first, *others = [
            units.expand(numbered_by_use(equal, each))
            for each in (searched.device_of, *searched.others)
        ]
        return replace(searched, device_of=found_first, others=tuple(others))

    def _parameters(self, found: Record) -> SolverParameters:
        """How to search: each search draws other numbers, and of few units has so many cycles."""
        given, few = found.parameters, self.schedule.most_counted_units
        cycles = given.work_limit
        if cycles is None and self.given.units.unit_count <= few:
            cycles = self.schedule.cycles
        return replace(given, work_limit=cycles, seed=given.seed + found.searches)

    def learn(self, found: Record, searched: Solution, over: Sequence[int]) -> str:
        """Sets what the next search is about.  Returns why none follows, if none does."""
        if searched.device_of is None:
            return "no placement was found"
        self.caps.tried.note(self.caps.now, self._counted(searched.device_of), over)
        is_new = searched.device_of not in self.seen
        self.seen.add(searched.device_of)
        cycles = self._parameters(found).work_limit
        spread = 0.0 if cycles and cycles < self.schedule.spread_cycles else self.schedule.spread
        if max(over) > 0 and self.spread < spread:
            self.spread = spread
            self.share, self.least_seconds = self.schedule.next_share, self.schedule.least_seconds
        elif max(over) > 0 and is_new:
            self._leave_room(found, searched.device_of, over)
        elif found.best is None:
            if not self.schedule.is_patient:
                return "the same placement again"
            self.least_seconds *= 2.0  # the search was too short to begin
        else:
            self._turn(found)
        return ""

    def _leave_room(self, found: Record, device_of: Sequence[int], over: Sequence[int]) -> None:
        """After a placement above some caps: room for what is beyond what is counted there.  What
        the best holds may stay where another objective than the cost is searched."""
        floors = None
        if found.best is not None and not found.request.asks_least_cost:
            floors = self._counted(found.best.device_of or ())
        self.caps.lower(self._counted(device_of), over, floors)
        # a search that missed its own caps was too short
        schedule = ORDERS if self.caps.is_missed else self.schedule
        self.is_near, self.share = True, schedule.next_share
        self.least_seconds = schedule.least_seconds

    def _turn(self, found: Record) -> None:
        """After a placement within the caps, or one that is known: the room that the best leaves,
        and a search near it, or from nothing if the last one was near."""
        assert found.best is not None
        assert found.best.device_of is not None
        best = found.best.device_of
        self.caps.widen(self._counted(best), self._over(found, best))
        if self.is_near and not found.request.asks_least_cost:
            found.missed.clear()  # nothing fits near it
        self.is_near = not self.is_near
        self.share = self.schedule.near_share if self.is_near else self.schedule.anew_share
        self.least_seconds = self.schedule.least_seconds

    def _counted(self, device_of: Sequence[int]) -> list[float]:
        return self.given.peaks(self.given.units.project(device_of))

    def _over(self, found: Record, device_of: Sequence[int]) -> list[int]:
        return found.request.predict.bytes_over(device_of)
