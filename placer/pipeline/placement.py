"""From a workload to the plan for it: the one way to place a program."""

import logging
from dataclasses import replace

from placer.pipeline.fitting import fit_workload
from placer.pipeline.formulation import Formulation, constraints_of, formulate
from placer.pipeline.predicted_placement import PredictedPlacement, predict_placement
from placer.pipeline.searching import find_placement, predict_solution
from placer.pipeline.solved_plan import assemble_plan, fitted_plan
from placer.pipeline.stored_bytes import idle_bytes
from placer.pipeline.workload import Workload
from placer.plan.plan import Plan
from placer.prediction.scoring import cost
from placer.solving.process import clock
from placer.solving.solution import Solution, Status

_LOG = logging.getLogger(__name__)


def untried(plan: Plan) -> Plan:
    """``plan`` without the changes that the search thinks would fit, where none is tried."""
    if plan.conflict is None:
        return plan
    return replace(plan, conflict=replace(plan.conflict, fixes=()))


def place_workload(
    workload: Workload, formulation: Formulation | None = None, *, explains: bool = False
) -> Plan:
    """The plan for a workload; if it ``explains``, with what is in conflict where nothing fits.

    ``formulation`` is what :func:`formulate` gave, if that is known already.
    """
    deadline = clock.monotonic() + workload.wanted.time_limit
    fitted = fit_workload(workload) if workload.wanted.fit else None  # the step may be rewritten
    plan = fitted_plan(fitted)
    if plan is not None:
        return plan
    formulation = formulation or formulate(workload)  # constraints, and the problem in numbers
    solution = find_placement(formulation)
    predicted = predict_solution(formulation, solution)  # transfers, memory, times
    plan = assemble_plan(formulation, solution, predicted, fitted)
    return with_conflict(plan, solution, deadline) if explains else plan


def place_first_choices(workload: Workload) -> Plan:
    """The plan without a search: every op is on its first choice, which is the first accelerator
    unless a kernel or a request rules that out.  Where this breaks caps the status is ``UNKNOWN``,
    and the figures are what it would take."""
    formulation = formulate(workload)
    predicted = predict_placement(workload, formulation.constraints.first_choice)
    devices = {device.name: number for number, device in enumerate(workload.cluster.devices)}
    is_over = predicted.metrics.over_caps(workload.cluster.caps)
    problem = formulation.problem
    device_of = tuple(devices[predicted.placement[op]] for op in problem.op_names)
    solution = Solution(
        status=Status.UNKNOWN if is_over else Status.FEASIBLE,
        device_of=device_of,
        value=cost(problem, device_of) if problem.objective == "transfer" else None,
    )
    return assemble_plan(formulation, solution, predicted)


def predict_on_one_device(workload: Workload) -> PredictedPlacement:
    """A step with everything on the first accelerator but feeds and host-only kernels; pins, groups
    and device strings are ignored."""
    free = replace(workload.wanted, pins={}, pin_types={}, keep_together=(), clear_devices=True)
    workload = as_loaded(workload)
    return predict_placement(workload, constraints_of(replace(workload, wanted=free)).first_choice)


def as_loaded(workload: Workload) -> Workload:
    """``workload`` beside what is loaded where nothing is placed, and not used."""
    idle = idle_bytes(workload.extraction.stored, workload.cluster)
    return workload.with_graph(workload.graph.with_idle(idle))


def with_conflict(plan: Plan, solution: Solution, deadline: float) -> Plan:
    """``plan`` with what is in conflict, if it is proven that nothing fits."""
    if solution.unsolvable is None:
        return plan
    from placer.solving.conflicts.conflict import conflict_seconds, explain_conflict

    _LOG.info("searching for the conflict")
    conflict = explain_conflict(solution.unsolvable, conflict_seconds(deadline))
    return replace(plan, conflict=conflict.with_limits(plan.devices))
