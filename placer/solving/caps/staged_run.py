"""One search under caps on peaks: its stages leave rows, and what they find is judged."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from placer.errors import PlacerError
from placer.problem.placement_problem import PlacementProblem
from placer.problem.status import Stage
from placer.solving.caps.expected import Candidate, ExpectedImprovement
from placer.solving.caps.orders import Orders
from placer.solving.caps.record import PeakRequest, Record
from placer.solving.caps.rows import Rows
from placer.solving.caps.schedule import ORDERS, SCHEDULE
from placer.solving.compiled.arrays import Floats
from placer.solving.objectives.refining import value_of
from placer.solving.peaks.repair import repair
from placer.solving.peaks.search_caps import SearchCaps, TriedCaps
from placer.solving.peaks.step_search import peak_problem_of
from placer.solving.process import clock
from placer.solving.process.child_search import SEARCH_TASK, effort_of, searching_child
from placer.solving.process.compiling import PEAKS, await_compiled
from placer.solving.process.deadline import Deadline
from placer.solving.process.search_run import Answer, Effort, SearchRequest
from placer.solving.reduction.contraction import contract
from placer.solving.reduction.equal_devices import interchangeable_devices, numbered_by_use
from placer.solving.reduction.unit_problem import reduce_to_units
from placer.solving.search.peak_problem import PeakProblem
from placer.solving.solution import Solution, SolverParameters, Status
from placer.solving.solver import DEFAULT_SOLVER
from placer.solving.tidying import tidy_within

_SEARCH = "placer.solving.transfer.transfer_process:search_bound"


class BoundBeside:
    """The bound of ``problem``, sought for ``seconds``; ``device_of`` is a placement that says how
    much there is to prove, and ``value`` its cost if it keeps all limits: no bound is above that.
    """

    def __init__(
        self,
        problem: PlacementProblem,
        device_of: Sequence[int],
        value: float | None,
        parameters: SolverParameters,
        seconds: float,
    ) -> None:
        self._deadline = time.time() + seconds
        self._most = value
        self._child = searching_child()
        self._answer: Answer | None = None
        arguments = (problem, device_of, value, effort_of(parameters, self._deadline))
        self._thread = threading.Thread(target=self._run, args=arguments, daemon=True)
        self._thread.start()

    def _run(
        self,
        problem: PlacementProblem,
        device_of: Sequence[int],
        value: float | None,
        effort: Effort,
    ) -> None:
        units = contract(reduce_to_units(problem))
        known = units.project(device_of)
        if value is not None:  # nothing that costs more is of interest
            units = contract(units, int(value))
            known = units.project(device_of)
        request = SearchRequest(search=_SEARCH, problem=units, hints=(known,), effort=effort)
        try:
            left = max(0.0, effort.deadline - time.time())
            self._answer = self._child.ask(SEARCH_TASK, request, left).answer
        except (PlacerError, OSError):  # no bound then; what was found is none the worse
            return

    def end(self, *, wait: bool) -> Solution | None:
        """Returns what was proven, after the rest of the time if there is reason to ``wait``."""
        if wait:
            self._thread.join(max(0.0, self._deadline - time.time()))
        self._child.end_group()
        self._thread.join()
        bound = None if self._answer is None else self._answer.lower_bound
        if bound is None:
            return None
        return Solution(
            status=Status.UNKNOWN,
            lower_bound=bound if self._most is None else min(bound, self._most),
        )


_MANY = 1_000_000


class StageKind(NamedTuple):
    """A stage: its name, and what it does until a deadline, which returns why it began and how it
    ended, or ``None`` if there was no reason.  One that ``is_last`` comes even where all is proven;
    that one and one that ``comes_late`` come after the deadline, too."""

    name: str
    run: Callable[[StagedRun, Deadline], tuple[str, str] | None]
    is_last: bool = False
    comes_late: bool = False


Way = Rows | Orders
"""A way to search, which learns from what the prediction says of what it found: whether that
``is_tidy``, or ``tidies`` at once, and with how much less left no search follows."""


class StagedRun:
    """The stages of one search: ``rows`` and ``fitting_rows``, for the least cost before another
    objective, remember what they have learned from stage to stage.  It ``is_tight`` where the first
    plan took several searches, or of a large program came after placements above a cap: rows say
    too little then."""

    def __init__(self, request: PeakRequest) -> None:
        self.request = request
        self.began = clock.monotonic()
        self.found = Record(request)
        self.rows = Rows(request.problem, request.solver, fits_first=not request.asks_least_cost)
        self.rows.to_prove = request.is_layered
        self.rows.reserves = not request.searches_orders
        self.least_cost = replace(request.problem, objective="transfer")
        self.fitting_rows = Rows(self.least_cost, DEFAULT_SOLVER, fits_first=True)
        self.tried_caps = TriedCaps(len(request.problem.capacity_bytes))
        self.beside: BoundBeside | None = None
        self.tidied_seconds = 0.0
        self.is_tight = False

    @property
    def deadline(self) -> Deadline:
        """When all stages end."""
        return self.request.deadline(self.began)

    @cached_property
    def peaks(self) -> PeakProblem:
        """Returns what searches along the orders are about."""
        return self._peaks_of(self.request.problem)

    @cached_property
    def fitting_peaks(self) -> PeakProblem:
        """The same for the least cost, where the objective is another."""
        return self.peaks if self.request.asks_least_cost else self._peaks_of(self.least_cost)

    def _peaks_of(self, problem: PlacementProblem) -> PeakProblem:
        assert self.request.find_lifetimes is not None
        lifetimes = self.request.find_lifetimes()
        return peak_problem_of(problem, lifetimes, SearchCaps(problem).most)

    def run(self, kind: StageKind) -> None:
        """A stage, if there is reason for it, with its row."""
        found = self.found
        if found.infeasible is not None or (found.is_settled and not kind.is_last):
            return
        comes_late = kind.is_last or kind.comes_late
        if found.best is not None and self.deadline.is_over() and not comes_late:
            found.is_cut = True
            return
        began, searches = clock.monotonic(), found.searches
        reasons = kind.run(self, self.deadline)
        if reasons is None:
            return
        why, ended = reasons
        found.stages.append(
            Stage(
                name=kind.name,
                why=why,
                ended=ended,
                seconds=clock.monotonic() - began,
                searches=found.searches - searches,
                value=None if found.best is None else found.best.value,
                lower_bound=found.bound,
            )
        )

    def pursue(
        self, way: Way, deadline: Deadline, most: int | None = None, *, until_fits: bool = False
    ) -> str:
        """Searches one way, so often at ``most`` or until the deadline, what is found judged and
        learned from each time; returns how it ended."""
        found = self.found
        most = most or (SCHEDULE.counted_searches if deadline.is_counted else _MANY)
        for number in range(most):
            judged = self.request.predict.longest_seconds
            if number and deadline.is_over(way.least_left_seconds + judged):
                break
            searched = way.search(found, deadline)
            if searched is None:
                break
            found.note(searched)
            over: list[int] = []
            if searched.device_of is not None:
                best = found.best
                over = found.take(searched, is_tidy=way.is_tidy)
                if max(over) > 0:
                    searched, over = self.take_others(searched, over, deadline)
                if found.best is not best and way.tidies and not until_fits:
                    self.tidy(deadline)
            ended = found.ended(until_fits=until_fits) or way.learn(found, searched, over)
            if ended:
                return ended
        else:
            return "its searches are done"
        found.is_cut = found.is_cut or not deadline.is_counted
        return "its time is over"

    def take_others(
        self, searched: Solution, over: list[int], deadline: Deadline
    ) -> tuple[Solution, list[int]]:
        """Judges some that a search found beside a placement that is above a cap, those first from
        which most is expected.  Returns the one that is the least above the caps, with by how much
        each device is."""
        if not searched.others or searched.device_of is None:
            return searched, over
        if self.peaks.units.unit_count > ORDERS.most_counted_units:  # predictions take seconds
            deadline = deadline.part(SCHEDULE.others_share)
        problem = self.request.problem
        expected = ExpectedImprovement(
            [
                Candidate(cost, each, self._room(each))
                for each in searched.others
                if (cost := value_of(problem, each)) < self.found.value
            ]
        )
        expected.note(self._room(searched.device_of), self._shares(over))
        for _ in range(SCHEDULE.others_judged):
            if deadline.is_over(self.request.predict.usual_seconds):
                break
            candidate = expected.next(self.found.value)
            if candidate is None:
                break
            other = replace(searched, device_of=candidate.device_of)
            beside = self.found.take(other, is_tidy=False)
            expected.note(candidate.room, self._shares(beside))
            if sum(max(0, each) for each in beside) < sum(max(0, each) for each in over):
                searched, over = other, beside
        return searched, over

    def _room(self, device_of: Sequence[int]) -> Floats:
        """The share of every accelerator's cap that is free as the search counts."""
        counted = self.peaks.peaks(self.peaks.units.project(device_of))
        return 1.0 - self._shares(counted)

    def _shares(self, sizes: Sequence[float]) -> Floats:
        """Bytes on every device as shares of the caps of accelerators."""
        problem = self.request.problem
        caps = np.maximum(1.0, problem.capacity_bytes)
        return np.asarray((np.asarray(sizes) / caps)[list(problem.beside_host)])

    def mend(self, near: Solution, is_late: Callable[[], bool]) -> None:
        """Takes what moves lead to from ``near``, which is above a cap, or from others that are
        cheaper, each of them judged."""
        assert near.device_of is not None
        others = self.found.cheaper(near)
        await_compiled(PEAKS)
        request, units = self.request, self.peaks.units
        mended = repair(
            replace(self.peaks, capacity=request.problem.capacity_bytes),
            [units.project(each) for each in (near.device_of, *others)],
            lambda device_of: request.predict.bytes_over(units.expand(device_of)),
            is_late,
            self.found.value,
        )
        self.found.take(replace(near, device_of=units.expand(mended)), is_tidy=False)

    def tidy(self, deadline: Deadline) -> None:
        """Clears the best placement of debris, as far as there is time for predictions."""
        found, predict = self.found, self.request.predict
        assert found.best is not None
        assert found.best.device_of is not None

        def is_late(predictions: int) -> bool:
            return not deadline.is_counted and deadline.is_over(predictions * judged)

        began, judged = clock.monotonic(), predict.longest_seconds
        problem, before = self.request.problem, found.best.device_of
        device_of, _ = tidy_within(problem, before, predict.bytes_over, is_late)
        value = value_of(problem, device_of)
        found.best = replace(found.best, device_of=device_of, value=value)
        found.is_tidy = not is_late(1)
        self.tidied_seconds = clock.monotonic() - began

    def name_devices(self) -> None:
        """Names equal devices in the order in which the program first uses them, if the best of a
        search along the orders then fits as it did, and to predict that takes no time."""
        found, request = self.found, self.request
        is_slow = request.predict.longest_seconds > SCHEDULE.late_seconds
        if "peaks" not in self.__dict__ or found.best is None or is_slow:
            return
        assert found.best.device_of is not None
        caps, units = request.problem.capacity_bytes, self.peaks.units
        equal = interchangeable_devices(units, lambda device: caps[device])
        named = numbered_by_use(equal, units.project(found.best.device_of))
        device_of, value = units.expand(named), found.best.value
        if value_of(request.problem, device_of) != value:  # of a step, names may matter
            return
        if device_of != found.best.device_of and max(request.predict.bytes_over(device_of)) <= 0:
            found.best = replace(found.best, device_of=device_of)

    def begin_bound(self) -> None:
        """Begins the search for a bound beside, once something says how much there is to prove."""
        found, known = self.found, self.found.known[-1:]
        if self.request.proves_beside and self.beside is None and known:
            value = None if found.best is None else found.best.value
            left = self.deadline.left()
            self.beside = BoundBeside(self.request.problem, known[0], value, found.parameters, left)

    def end_bound(self, *, wait: bool) -> None:
        """Ends the search for a bound, after the rest of its time if it is to ``wait``."""
        beside, self.beside = self.beside, None
        if beside is not None and (proven := beside.end(wait=wait)) is not None:
            self.found.raise_bound(proven.lower_bound)
