"""A search in a process of its own that may be late, crash or talk nonsense without harm."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Protocol

from placer.processes import Child, Ending, Outcome
from placer.solving.process.compiling import (
    ONE_THREAD,
    PEAKS,
    await_compiled,
    code_environment,
    is_compiled,
)
from placer.solving.process.search_run import Answer, Effort, SearchRequest
from placer.solving.solution import CRASHED, Solution, SolverParameters, Status

SEARCH_TASK = "placer.solving.process.search_run:run_search"

Warnings = tuple[tuple[str, str], ...]


class SearchProblem(Protocol):
    """The problems that the child can solve: their answers can be checked."""

    def value(self, device_of_unit: Sequence[int]) -> float:
        """The cost of a placement."""
        ...

    def is_feasible(self, device_of_unit: Sequence[int]) -> bool:
        """Whether a placement keeps all limits."""
        ...


def search_in_child(
    search: str,
    problem: SearchProblem,
    hints: Sequence[Sequence[int]],
    parameters: SolverParameters,
    time_limit_seconds: float,
) -> Solution:
    """The result of ``search`` (``package.module:function``) in the solver process, begun at the
    ``hints``; takes ``time_limit_seconds`` and the grace at most, once its code is compiled.

    However the process ends, what it found last has been checked against the problem; warnings say
    what went wrong.  If it dies in CP-SAT, the search goes on without that for the rest of the
    time."""
    await_compiled(search)
    deadline = time.time() + time_limit_seconds
    request = SearchRequest(
        search=search,
        problem=problem,
        hints=tuple(map(tuple, hints)),
        effort=effort_of(
            # all that the child found is known once its search is over: to end it needs a little
            parameters,
            deadline - min(0.5, 0.1 * time_limit_seconds),
        ),
    )
    outcome = _ask(request, time_limit_seconds)
    found = _result(outcome, problem)
    left = deadline - time.time()
    in_cp_sat = outcome.ending is Ending.DIED and getattr(outcome.answer, "in_cp_sat", False)
    if not in_cp_sat or left < 1.0:  # too little to go on
        return found
    message = f"CP-SAT crashed, and the search went on without it: {outcome.reason}"
    found = replace(found, warnings=((CRASHED, message),))
    known = [] if found.device_of is None else [found.device_of]
    request = replace(
        request,
        hints=(*known, *request.hints),
        effort=replace(request.effort, without_cp_sat=True),
    )
    outcome = _ask(request, left)
    return _joined(found, _result(outcome, problem))


def _joined(found: Solution, later: Solution) -> Solution:
    """The later answer, which began at the placement found before, with the better bound; the
    earlier one if there is none."""
    if later.status is Status.UNKNOWN:
        later = replace(found, warnings=later.warnings)
    bounds = [each.lower_bound for each in (found, later) if each.lower_bound is not None]
    return replace(
        later,
        lower_bound=max(bounds, default=None),
        warnings=(*found.warnings, *later.warnings),
        is_cut=True,
    )


def _result(outcome: Outcome, problem: SearchProblem) -> Solution:
    """Returns what a search has found, and how its process ended where that is not as it should."""
    warnings: Warnings = ()
    if outcome.ending is not Ending.ANSWERED:
        code = "solver_stopped" if outcome.ending is Ending.LATE else CRASHED
        kept = "without a result" if outcome.answer is None else "and its best result is kept"
        if code == CRASHED:
            said = f"one of the searches failed ({outcome.reason}) {kept}"
        else:
            more = "a longer --time-limit may find a better placement"
            said = f"one of the searches ran out of time {kept}; {more}"
        warnings = ((code, said),)
    if outcome.answer is None:
        return Solution(status=Status.UNKNOWN, warnings=warnings, is_cut=bool(warnings))
    try:
        return _checked(outcome.answer, problem, warnings)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        malformed = (CRASHED, f"the answer of the solver process is malformed: {error}")
        return Solution(status=Status.UNKNOWN, warnings=(*warnings, malformed))


def effort_of(parameters: SolverParameters, deadline: float) -> Effort:
    """How to search until ``deadline`` (of ``time.time()``)."""
    known = asdict(parameters)
    known["seed"] %= 1 << 31  # what CP-SAT takes
    return Effort(**known, deadline=deadline)


_ahead: list[Child] = []
"""The processes that wait for their search."""

_blocks: list[None] = []
"""One entry for each :func:`one_search_process` that is open."""


def start_searcher_ahead(processes: int = 1) -> None:
    """Starts the process of the next search, or of so many, which load the machine code while this
    one is busy."""
    while len(_ahead) < processes and is_compiled(PEAKS):
        _ahead.append(Child(_environment(), ("placer.solving.warm_up:load_peaks",)))


@contextmanager
def one_search_process() -> Iterator[None]:
    """Searches inside of it are run by one process, which ends with the outermost block."""
    _blocks.append(None)
    try:
        yield
    finally:
        _blocks.pop()
        if not _blocks:
            end_ahead()


def end_ahead() -> None:
    """Ends the processes that wait for a search."""
    while _ahead:
        _ahead.pop().close(wait=False)


def searching_child() -> Child:
    """A child for a search, the one that waits if there is one."""
    return _ahead.pop(0) if _ahead else Child(_environment())


def _ask(request: SearchRequest, time_limit_seconds: float) -> Outcome:
    """The outcome of one search in the process that waits, or else in a new one; inside of
    :func:`one_search_process` it then waits for the next, unless its machine code or its search was
    late."""
    with_code = is_compiled(PEAKS)
    child = searching_child()
    limit = time_limit_seconds + 0.7  # then it is killed
    outcome = child.ask(SEARCH_TASK, request, limit, keep=True)
    is_answered = outcome.ending is Ending.ANSWERED
    is_running = getattr(outcome.answer, "is_running", True)
    if is_answered and with_code and _blocks and not _ahead and not is_running:
        _ahead.append(child)
        return outcome
    if is_answered:
        child.close(wait=False)
    if _blocks:
        start_searcher_ahead()  # it is ready once what was found is judged
    return outcome


def _environment() -> dict[str, str]:
    """The machine code, and one thread for numpy's linear algebra: a search has threads of its own,
    and others would only wait for them."""
    return {**ONE_THREAD, **code_environment()}


def _checked(answer: Answer, problem: SearchProblem, warnings: Warnings) -> Solution:
    """The answer as a result; raises ``ValueError`` if its placement does not fit the problem."""
    bound = answer.lower_bound
    if not isinstance(bound, int | float | None):
        raise ValueError(f"the bound is {bound!r}")
    result = Solution(
        status=Status(answer.status),
        lower_bound=bound,
        warnings=warnings,
        is_cut=answer.is_cut or bool(warnings),
    )
    if answer.device_of is None:
        return result
    device_of = tuple(int(device) for device in answer.device_of)
    if not problem.is_feasible(device_of):
        raise ValueError("the placement breaks a limit")
    others = [tuple(map(int, other)) for other in answer.others]
    return replace(
        result,
        device_of=device_of,
        value=problem.value(device_of),
        others=tuple(other for other in others if problem.is_feasible(other)),
    )
