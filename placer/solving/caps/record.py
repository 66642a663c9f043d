"""The request for a placement under caps on peaks, and the record of what is found."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from placer.prediction.orders.possible_lifetimes import PossibleLifetimes
from placer.problem.placement_problem import PlacementProblem
from placer.problem.status import Stage
from placer.solving.caps.predictions import Predictions, overrun_conflict, overrun_warnings
from placer.solving.caps.schedule import SCHEDULE
from placer.solving.objectives.refining import value_of
from placer.solving.process.deadline import Deadline
from placer.solving.solution import Solution, SolverParameters, Status
from placer.solving.solver import DEFAULT_SOLVER

LifetimeFinder = Callable[[], PossibleLifetimes]
"""Gives the buffers of a step, whatever the placement."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakRequest:
    """The request: ``problem`` by ``solver``, its caps for what ``predict`` says.  With
    ``find_lifetimes`` placements can be searched along the orders of the step."""

    problem: PlacementProblem
    predict: Predictions
    parameters: SolverParameters
    solver: str = DEFAULT_SOLVER
    find_lifetimes: LifetimeFinder | None = None

    @property
    def is_ours(self) -> bool:
        """Whether our own solver is asked, and no baseline."""
        return self.solver == DEFAULT_SOLVER

    @property
    def is_counted(self) -> bool:
        """Whether work ends the stages, and not the clock."""
        return self.parameters.work_limit is not None

    @property
    def asks_least_cost(self) -> bool:
        """Whether the objective is the least cost."""
        return self.problem.objective == "transfer"

    @property
    def searches_orders(self) -> bool:
        """Whether placements are searched along the orders."""
        is_searched = self.problem.objective != "throughput"
        return self.is_ours and is_searched and self.find_lifetimes is not None

    @property
    def is_layered(self) -> bool:
        """Whether the program is large: its layers are dealt out, and rows prove rather than
        find."""
        is_large = len(self.problem.op_names) > SCHEDULE.least_layered_ops
        return is_large and self.asks_least_cost and self.searches_orders

    @property
    def is_divided(self) -> bool:
        """Whether the least cost of a program is asked for that no accelerator holds."""
        given = self.problem
        moments = (sum(each.values()) for each in given.live_bytes)
        held = sum(given.resident_bytes) + max(moments, default=0)
        most = max((given.capacity_bytes[device] for device in given.beside_host), default=held)
        return self.searches_orders and self.asks_least_cost and held > most

    @property
    def proves_beside(self) -> bool:
        """Whether a bound is sought on a core of its own: of a program so large that rows prove
        little.  With one accelerator they decide at once."""
        is_large = len(self.problem.op_names) > SCHEDULE.least_ops_beside
        allowed = self.problem.allowed
        is_open = 2 * sum(len(devices) > 1 for devices in allowed) > len(allowed)
        return is_large and is_open and self.is_layered and not self.is_counted

    def deadline(self, began: float) -> Deadline:
        """When the stages end that began then.  Time is kept back for what the plan of a program is
        predicted with in the end, which takes as long as any prediction."""
        kept_back = self.predict.longest_seconds if self.searches_orders else 0.0
        at = began + self.parameters.time_limit_seconds - kept_back
        return Deadline(at, self.is_counted)


def _value(found: Solution) -> float:
    return math.inf if found.value is None else found.value


class Record:
    """The record of what is found so far: ``best`` keeps all caps; ``missed`` are (bytes above them
    all together, placement), the least above first, each cheaper than those before it; ``bound`` is
    proven, ``infeasible`` the proof that nothing fits.

    ``is_tidy``: the best has no debris.  ``is_cut``: the clock ended some part of the search.
    ``searches`` have been made, and ``stages`` have ended.
    """

    def __init__(self, request: PeakRequest) -> None:
        self.request = request
        self.best: Solution | None = None
        self.missed: list[tuple[int, Solution]] = []
        self.bound: float | None = None
        self.infeasible: Solution | None = None
        self.is_tidy = True
        self.is_cut = False
        self.crashes: dict[str, str] = {}
        self.searches = 0
        self.stages: list[Stage] = []

    @property
    def value(self) -> float:
        """The cost of the best; infinite where nothing fits yet."""
        return math.inf if self.best is None else _value(self.best)

    @property
    def nearest(self) -> Solution | None:
        """The placement that is the least above the caps, of what is worth less than the best."""
        return self.nearest_below(math.inf)

    def nearest_below(self, value: float) -> Solution | None:
        """The same of what is worth less than ``value``."""
        return next((each for _, each in self.missed if _value(each) < value), None)

    def cheaper(self, near: Solution) -> list[Sequence[int]]:
        """The placements that are cheaper than ``near`` and at most three times as far above the
        caps."""
        most = next((3 * above for above, each in self.missed if each is near), 0)
        return [
            each.device_of
            for above, each in self.missed
            if each.device_of is not None and above <= most and _value(each) < _value(near)
        ]

    @property
    def is_settled(self) -> bool:
        """Whether the best is proven to be that, or that there is none."""
        return self.infeasible is not None or self.value <= (self.bound or 0.0)

    def ended(self, *, until_fits: bool) -> str:
        """Why nothing more is searched, if nothing is; once anything fits, if that is enough."""
        if self.infeasible is not None:
            return "nothing fits, proven"
        if self.is_settled:
            return "proven"
        return "a placement fits" if until_fits and self.best is not None else ""

    @property
    def known(self) -> list[Sequence[int]]:
        """The placements to begin at: the nearest, then the best."""
        both = (self.nearest, self.best)
        return [each.device_of for each in both if each is not None and each.device_of is not None]

    @property
    def parameters(self) -> SolverParameters:
        """How to search: without CP-SAT once that has crashed."""
        given = self.request.parameters
        return replace(given, without_cp_sat=given.without_cp_sat or bool(self.crashes))

    def note(self, searched: Solution) -> None:
        """Counts a search that has ended, with what happened to it."""
        self.searches += 1
        self.is_cut = self.is_cut or searched.is_cut
        self.crashes |= searched.crashes

    def raise_bound(self, bound: float | None) -> None:
        """Takes a bound that is proven for the problem (``None``: none was)."""
        if bound is not None:
            self.bound = bound if self.bound is None else max(self.bound, bound)

    def take(self, found: Solution, *, is_tidy: bool) -> list[int]:
        """Judges a placement and keeps it if it is worth it; returns by how much each device is
        above its cap."""
        assert found.device_of is not None
        over = self.request.predict.bytes_over(found.device_of)
        value = value_of(self.request.problem, found.device_of)
        found = replace(found, status=Status.UNKNOWN, value=value, lower_bound=None)
        above = sum(each for each in over if each > 0)
        if not above and value < self.value:
            self.best, self.is_tidy = replace(found, status=Status.FEASIBLE), is_tidy
            _LOG.debug("a placement that fits: %s", value)
        elif above:
            self._miss(above, found)
        self.missed = [each for each in self.missed if _value(each[1]) < self.value]
        return over

    def _miss(self, above: int, found: Solution) -> None:
        """Keeps a placement above some cap, unless one is as much above, or less and no dearer."""
        value = _value(found)
        if all(
            less > above or (less < above and _value(other) > value) for less, other in self.missed
        ):
            others = [e for e in self.missed if e[0] < above or _value(e[1]) < value]
            self.missed = sorted([*others, (above, found)], key=lambda each: each[0])

    def answer(self, seconds: float) -> Solution:
        """The best placement with what is proven, or why there is none; a search that crashed is
        reported, whichever stage it was in."""
        found = self._answer()
        return replace(
            found,
            seconds=seconds,
            is_cut=self.is_cut,
            warnings=tuple((self.crashes | dict(found.warnings)).items()),
            stages=tuple(self.stages),
        )

    def _answer(self) -> Solution:
        if self.best is not None:
            bound = 0.0 if self.value == 0 else self.bound  # nothing is less
            if bound is None or bound < self.value:
                return replace(self.best, lower_bound=bound)
            return replace(self.best, status=Status.OPTIMAL, lower_bound=self.value)
        if self.infeasible is not None:
            return self.infeasible
        unknown = Solution(status=Status.UNKNOWN, lower_bound=self.bound)
        if self.nearest is None or self.nearest.device_of is None:
            return unknown
        problem = self.request.problem
        overruns = self.request.predict.overruns(self.nearest.device_of)
        return replace(
            self.nearest,
            warnings=(*self.nearest.warnings, *overrun_warnings(problem, overruns)),
            conflict=overrun_conflict(problem, overruns),
        )
