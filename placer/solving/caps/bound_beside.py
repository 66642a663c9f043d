"""The bound of a large program, sought on a core of its own beside the rounds."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from placer.errors import PlacerError
from placer.problem.placement_problem import PlacementProblem
from placer.solving.process.child_search import SEARCH_TASK, effort_of, searching_child
from placer.solving.process.search_run import Answer, Effort, SearchRequest
from placer.solving.reduction.contraction import contract
from placer.solving.reduction.unit_problem import reduce_to_units
from placer.solving.solution import Solution, SolverParameters, Status

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
