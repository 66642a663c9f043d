"""Everything that is known about a solved placement, as one plan."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from cost_models.devices import DeviceProperties
from cost_models.kernels import gpu_kernel
from cost_models.op_info import OpInfo
from placer import __version__
from placer.fitting.fitted_step import FittedStep
from placer.graph.rewriting import NO_REWRITING
from placer.pipeline.costing import has_red_zones
from placer.pipeline.fitting import FittedPlacement
from placer.pipeline.followed_hints import hints_apart
from placer.pipeline.formulation import Formulation
from placer.pipeline.plan_warnings import (
    assumed_messages,
    assumed_trips,
    plan_warnings,
)
from placer.pipeline.predicted_placement import PredictedPlacement
from placer.pipeline.stored_bytes import loading_facts
from placer.pipeline.untried_changes import with_untried
from placer.plan.plan import Plan
from placer.plan.rows import PlanMetrics, PlannedDevice, SolverAnswer
from placer.prediction.metrics import SENT, MemoryNeed, Metrics
from placer.problem.device_peaks import DevicePeak
from placer.problem.placement_costs import cost_link, slower_bytes, slower_seconds
from placer.problem.status import Status
from placer.solving.caps.predictions import PEAK_OVER_CAP, overrun_conflict
from placer.solving.solution import Solution


def assemble_plan(
    formulation: Formulation,
    solution: Solution,
    predicted: PredictedPlacement | None,
    fitted: FittedPlacement | None = None,
) -> Plan:
    """Returns the plan for ``solution``; without a placement (``predicted is None``) its tables are
    empty.  ``fitted`` is the rewritten step, if there is one."""
    workload, extraction = formulation.workload, formulation.workload.extraction
    ops = workload.graph.ops.values()
    placement, metrics = (predicted.placement, predicted.metrics) if predicted else ({}, None)
    solution = _as_predicted(formulation, solution, metrics)
    loading = None
    if placement:
        loading = loading_facts(extraction.stored, workload.cluster, placement)
    return Plan(
        model=extraction.model.copy(),
        bindings=extraction.bindings.copy(),
        devices=tuple(_devices(formulation, predicted)),
        placement=placement,
        variables={v.name: placement[v.handle] for v in workload.graph.variables}
        if placement
        else {},
        transfers=metrics.transfers if metrics else (),
        metrics=_cost_metrics(formulation, plan_metrics(metrics, fitted), placement)
        if metrics
        else PlanMetrics(),
        solver=_answer(formulation, solution, metrics, fitted),
        unmodelled=dict(Counter(op.op_type for op in ops if workload.costs[op.name].unmodelled)),
        warnings=tuple(plan_warnings(formulation, solution, predicted, fitted, loading)),
        conflict=with_untried(solution.conflict, workload, metrics),
        control_edges=predicted.control_edges if predicted else (),
        rewriting=predicted.rewriting if predicted else NO_REWRITING,
        loading=loading,
        hints_apart=len(hints_apart(formulation.graph, placement)) if placement else 0,
        tensorflow_version=extraction.tensorflow_version,
        tool_version=__version__,
        step=predicted.step if predicted else None,
    )


def _as_predicted(
    formulation: Formulation, solution: Solution, metrics: Metrics | None
) -> Solution:
    """``solution`` with its overruns as ``metrics`` has them: the last prediction follows more than
    those of the search do, and a step that was made to fit keeps the caps."""
    if metrics is None or PEAK_OVER_CAP not in dict(solution.warnings):
        return solution
    problem, caps = formulation.problem, formulation.workload.cluster.caps
    taken = metrics.taken_bytes(caps)
    overruns = {
        number: DevicePeak(peak_bytes=taken[name], moment={})
        for number, name in enumerate(problem.device_names)
        if taken[name] > caps[name]
    }
    if not overruns:
        return replace(solution, status=Status.FEASIBLE, conflict=None)
    return replace(solution, conflict=overrun_conflict(problem, overruns))


def fitted_plan(fitted: FittedPlacement | None) -> Plan | None:
    """The plan of a step that was made to fit; ``None`` if it does not."""
    if fitted is None or not fitted.step.fits:
        return None
    return assemble_plan(fitted.formulation, fitted.solution, fitted.predicted, fitted)


def _devices(
    formulation: Formulation, predicted: PredictedPlacement | None
) -> Iterator[PlannedDevice]:
    cluster = formulation.workload.cluster
    for device in cluster.devices:
        known = PlannedDevice(
            name=device.name,
            type=device.type,
            model=device.model,
            memory_limit_bytes=device.memory_limit_bytes,
            usable_bytes=device.usable_bytes,
        )
        if device.card is not None:
            known = replace(
                known,
                card_bytes=device.card.total_bytes,
                card_context_bytes=device.card.context_bytes,
                card_kept_back_bytes=device.card.kept_back_bytes,
                card_usable_bytes=device.card.usable_bytes,
            )
        if predicted is None:
            yield known
            continue
        metrics, costs = predicted.metrics, formulation.workload.costs
        spilled = _spilled(formulation, predicted.placement, device)
        ops = formulation.graph.ops
        yield replace(
            known,
            resident_bytes=metrics.timelines[device.name].resident_bytes,
            **step_memory(metrics, device.name),
            red_zones=has_red_zones(formulation.workload.extraction, formulation.workload.wanted)
            if device.type == "GPU"
            else None,
            spilled_bytes=sum(  # without constants that are in host memory there too
                costs[op].persistent_bytes for op in spilled if not is_host_constant(ops[op].info)
            ),
            spilled_ops=len(spilled),
            busy_seconds=metrics.schedule.busy_seconds[device.name],
        )


def step_memory(metrics: Metrics, device: str) -> dict[str, Any]:
    """Returns the memory of ``device`` during a step, by the names of a plan's columns."""
    peak, found = metrics.peaks[device], metrics.needs[device]
    return {
        "peak_memory_bytes": peak.high_bytes,
        "peak_expected_bytes": peak.expected_bytes,
        "peak_low_bytes": peak.low_bytes,
        "allocator": found.allocator or None,
        "need_bytes": found.need.high_bytes,
        "need_expected_bytes": found.need.expected_bytes,
        "need_low_bytes": found.need.low_bytes,
        "in_use_peak_bytes": found.in_use.high_bytes,
        "in_use_expected_bytes": found.in_use.expected_bytes,
        "in_use_with_workspace_bytes": found.with_workspace_bytes,
        "needs": parts_of(found),
        "need_peak_op": found.parts.peak_op if found.parts else None,
    }


def parts_of(need: MemoryNeed) -> dict[str, int] | None:
    """The parts of a GPU's need, by the names of a plan."""
    if need.parts is None:
        return None
    return {
        "loading": need.parts.loading_bytes,
        "first_step": need.parts.first_step_bytes,
        "later_steps": need.parts.later_steps_bytes,
        "workspace": 0,
    }


def _spilled(
    formulation: Formulation, placement: Mapping[str, str], device: DeviceProperties
) -> list[str]:
    """The ops on a CPU that nothing but room and cost keeps off an accelerator."""
    constraints = formulation.constraints
    groups = zip(constraints.groups, constraints.group_devices, constraints.spillable, strict=True)
    return [
        op
        for group, allowed, is_free in groups
        for op in (group.ops if is_free and device.name not in allowed else ())
        if device.type == "CPU" and placement[op] == device.name
    ]


def is_host_constant(info: OpInfo) -> bool:
    """Whether an op is a constant that stays in host memory on a GPU, too."""
    kernel = gpu_kernel(info) if info.op == "Const" else None
    return kernel is not None and 0 in kernel.host_outputs


def plan_metrics(metrics: Metrics, fitted: FittedPlacement | None = None) -> PlanMetrics:
    """Returns the metrics of a step, with the extra seconds of one that was rewritten to fit."""
    rewritten = fitted is not None and fitted.step.fits and fitted.step.is_rewritten
    return PlanMetrics(
        fit_extra_seconds=fitted.step.extra_seconds if fitted and rewritten else None,
        transfer_bytes=metrics.bytes_of("data", "feed"),
        sent_bytes=metrics.bytes_of(*SENT),
        messages=len(metrics.transfers),
        transfer_count=sum(t.kind in ("data", "feed") for t in metrics.transfers),
        fetch_bytes=metrics.bytes_of("fetch"),
        collective_bytes=metrics.collective_bytes,
        step_seconds=metrics.schedule.step_seconds,
        bottleneck_seconds=metrics.schedule.bottleneck_seconds,
        critical_path_seconds=metrics.schedule.critical_path_seconds,
    )


def _cost_metrics(
    formulation: Formulation, known: PlanMetrics, placement: Mapping[str, str]
) -> PlanMetrics:
    """With how much longer ops take where they are than on the fastest accelerator for them."""
    workload = formulation.workload
    slower = slower_seconds(workload.costs, workload.cluster, formulation.constraints)
    place = {device.name: number for number, device in enumerate(workload.cluster.devices)}
    at = [place[placement[op]] for op in slower]
    seconds = sum(times[device] for times, device in zip(slower.values(), at, strict=True))
    worth = slower_bytes([*slower.values()], cost_link(workload.cluster))
    size = sum(sizes[device] for sizes, device in zip(worth, at, strict=True))
    return replace(known, slower_seconds=seconds, slower_bytes=size)


def _search_seconds(solution: Solution, fitted: FittedPlacement | None) -> float:
    """Returns the seconds of all searches: those that made the step fit have found the solution
    where it does."""
    if fitted is None:
        return solution.seconds
    return fitted.seconds + (0.0 if fitted.step.fits else solution.seconds)


def _answer(
    formulation: Formulation,
    solution: Solution,
    metrics: Metrics | None,
    fitted: FittedPlacement | None,
) -> SolverAnswer:
    """Returns the answer of the search.  Its status becomes ``UNKNOWN`` where allocators need more
    than the caps along orders, or with control edges, that the search did not follow, and where
    nothing fits but perhaps a step rewritten otherwise than was tried; a proof does not hold for a
    step that takes longer once it is made to fit, and a bound for no rewritten program and for no
    placement above a limit."""
    status = solution.status
    is_tried = status is Status.INFEASIBLE and fitted is not None
    is_over = metrics is not None and bool(metrics.over_caps(formulation.workload.cluster.caps))
    made = fitted.step if fitted is not None and fitted.step.fits else FittedStep()
    is_assumed = assumed_messages(formulation) or assumed_trips(formulation)
    if status is Status.OPTIMAL and (is_assumed or made.rewriting or not made.is_proven):
        status = Status.FEASIBLE
    is_bounded = not (made.rewriting or is_over)
    link = cost_link(formulation.workload.cluster)
    return SolverAnswer(
        status=Status.UNKNOWN.value if is_over or is_tried else status.value,
        objective=formulation.problem.objective,
        value=solution.value,
        lower_bound=solution.lower_bound if is_bounded else None,
        relative_gap=solution.relative_gap if is_bounded else None,
        seconds=_search_seconds(solution, fitted),
        seed=formulation.workload.wanted.seed,
        cut_by_time=solution.is_cut or (fitted is not None and fitted.step.is_cut),
        link_bandwidth=link.bandwidth,
        link_latency_seconds=link.latency,
        stages=solution.stages,
    )
