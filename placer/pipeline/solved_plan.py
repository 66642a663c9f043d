"""Everything that is known about a solved placement, as one plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from cost_models.byte_sizes import format_bytes
from cost_models.devices import ASSUMED_NETWORK_LINK, Cluster
from placer import __version__
from placer.fitting.fitted_step import FittedStep
from placer.graph.program_source import Warning_
from placer.graph.rewriting import NO_REWRITING
from placer.pipeline.fitting import FittedPlacement, fit_warnings
from placer.pipeline.formulation import Formulation
from placer.pipeline.hints import hint_warnings, hints_apart
from placer.pipeline.left_over import left_over_warnings
from placer.pipeline.loading import loading_facts, loading_warnings
from placer.pipeline.predicted_placement import PredictedPlacement, over_caps
from placer.plan.plan import Plan
from placer.plan.rows import PlanMetrics, PlannedDevice, PlannedTransfer, PlanWarning, SolverAnswer
from placer.prediction.metrics import Metrics
from placer.problem.status import Status
from placer.solving.caps.overruns import PEAK_OVER_CAP
from placer.solving.following import followers_of
from placer.solving.solution import Solution

_OPS_PER_WARNING = 20


def assemble_plan(
    formulation: Formulation,
    solution: Solution,
    predicted: PredictedPlacement | None,
    fitted: FittedPlacement | None = None,
) -> Plan:
    """The plan for ``solution``; without a placement (``predicted is None``) its tables are
    empty.  ``fitted`` is what came of rewriting the step."""
    workload, extraction = formulation.workload, formulation.workload.extraction
    ops = workload.graph.ops.values()
    placement, metrics = (predicted.placement, predicted.metrics) if predicted else ({}, None)
    followers = _followers(formulation, solution)
    return Plan(
        model=extraction.model.copy(),
        bindings=extraction.bindings.copy(),
        devices=tuple(_devices(formulation, predicted, frozenset(followers))),
        placement=placement,
        variables={v.name: placement[v.handle] for v in workload.graph.variables}
        if placement
        else {},
        transfers=tuple(PlannedTransfer(**asdict(row)) for row in metrics.transfers)
        if metrics
        else (),
        metrics=plan_metrics(metrics, fitted) if metrics else PlanMetrics(),
        solver=_answer(formulation, solution, metrics, fitted),
        unmodelled=dict(Counter(op.op_type for op in ops if workload.costs[op.name].unmodelled)),
        warnings=tuple(_warnings(formulation, solution, predicted, fitted)),
        conflict=solution.conflict,
        control_edges=predicted.control_edges if predicted else (),
        rewriting=predicted.rewriting if predicted else NO_REWRITING,
        followers=followers,
        loading=loading_facts(extraction.stored, workload.cluster, placement)
        if placement
        else None,
        hints_apart=len(hints_apart(formulation.graph, placement)) if placement else 0,
        tensorflow_version=extraction.tensorflow_version,
        tool_version=__version__,
        step=predicted.step if predicted else None,
    )


def fitted_plan(fitted: FittedPlacement | None) -> Plan | None:
    """The plan of a step that was made to fit; ``None`` if it does not."""
    if fitted is None or not fitted.step.fits:
        return None
    return assemble_plan(fitted.formulation, fitted.solution, fitted.predicted, fitted)


def _followers(formulation: Formulation, solution: Solution) -> tuple[str, ...]:
    """The ops that sit on the host beside its ops, and are not spilled."""
    if solution.device_of is None:
        return ()
    problem = formulation.problem
    found = followers_of(problem, solution.device_of)
    return tuple(name for op, name in enumerate(problem.op_names) if op in found)


def _devices(
    formulation: Formulation, predicted: PredictedPlacement | None, followers: frozenset[str]
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
        metrics = predicted.metrics
        is_host = device.name == cluster.host.name
        yield replace(
            known,
            resident_bytes=metrics.timelines[device.name].resident_bytes,
            **step_memory(metrics, device.name),
            spilled_bytes=_spilled_bytes(formulation, predicted.placement, followers)
            if is_host
            else 0,
            busy_seconds=metrics.schedule.busy_seconds[device.name],
        )


def step_memory(metrics: Metrics, device: str) -> dict[str, Any]:
    """Returns the memory of ``device`` during a step, by the names of a plan's columns."""
    peak, found = metrics.peaks[device], metrics.needs[device]
    return {
        "peak_memory_bytes": peak.high_bytes,
        "peak_expected_bytes": peak.expected_bytes,
        "peak_low_bytes": peak.low_bytes,
        "allocator": found.allocator,
        "need_bytes": found.need.high_bytes,
        "need_expected_bytes": found.need.expected_bytes,
        "need_low_bytes": found.need.low_bytes,
        "in_use_peak_bytes": found.in_use.high_bytes,
        "in_use_with_workspace_bytes": found.with_workspace_bytes,
    }


def _spilled_bytes(
    formulation: Formulation, placement: Mapping[str, str], followers: frozenset[str]
) -> int:
    """Resident bytes of groups that sit on a device they use only when spilled."""
    costs, constraints = formulation.workload.costs, formulation.constraints
    return sum(
        costs[op].persistent_bytes
        for group, devices in zip(constraints.groups, constraints.group_devices, strict=True)
        for op in group.ops
        if devices and placement[op] not in devices and op not in followers
    )


def plan_metrics(metrics: Metrics, fitted: FittedPlacement | None = None) -> PlanMetrics:
    """Returns the metrics of a step, with the extra seconds of one that was rewritten to fit."""
    rewritten = fitted is not None and fitted.step.fits and fitted.step.is_rewritten
    return PlanMetrics(
        fit_extra_seconds=fitted.step.extra_seconds if fitted and rewritten else None,
        transfer_bytes=metrics.bytes_of("data", "feed"),
        transfer_count=sum(t.kind in ("data", "feed") for t in metrics.transfers),
        fetch_bytes=metrics.bytes_of("fetch"),
        collective_bytes=metrics.collective_bytes,
        step_seconds=metrics.schedule.step_seconds,
        bottleneck_seconds=metrics.schedule.bottleneck_seconds,
        critical_path_seconds=metrics.schedule.critical_path_seconds,
    )


def _answer(
    formulation: Formulation,
    solution: Solution,
    metrics: Metrics | None,
    fitted: FittedPlacement | None,
) -> SolverAnswer:
    """Returns the answer of the search.  Its status becomes ``UNKNOWN`` where allocators need more
    than the caps along orders, or with control edges, that the search did not follow; a proof does
    not hold for a step that takes longer once it is made to fit."""
    is_placed = solution.device_of is not None
    is_over = metrics is not None and bool(over_caps(metrics, formulation.workload.cluster))
    status = solution.status
    made = fitted.step if fitted is not None and fitted.step.fits else FittedStep()
    if status is Status.OPTIMAL and not made.is_proven:
        status = Status.FEASIBLE
    return SolverAnswer(
        status=Status.UNKNOWN.value if is_over else status.value,
        objective=formulation.problem.objective,
        value=solution.value,
        lower_bound=solution.lower_bound,
        relative_gap=solution.relative_gap,
        seconds=solution.seconds,
        seed=formulation.workload.wanted.seed,
        cut_by_time=solution.is_cut or (fitted is not None and fitted.step.is_cut),
        spill_allowance_bytes=solution.spill_allowance_bytes if is_placed else None,
        spill_footprint_bytes=solution.spilled_bytes if is_placed else None,
    )


def _caps_over_cards(cluster: Cluster) -> Iterator[Warning_]:
    """Caps that no card of the named model keeps."""
    for device in cluster.devices:
        card = device.card
        if card is not None and device.usable_bytes > card.usable_bytes:
            message = (
                f"{device.name} may be filled up to {format_bytes(device.usable_bytes)}, but of a "
                f"{device.model} TensorFlow hands out about {format_bytes(card.usable_bytes)}: "
                f"{format_bytes(card.context_bytes)} go to the CUDA context, "
                f"{format_bytes(card.kept_back_bytes)} are kept back"
            )
            yield "cap_over_card", message, ()


def needs_over_caps(cluster: Cluster, metrics: Metrics) -> Iterator[Warning_]:
    """Devices whose allocator needs more than it may hand out."""
    for device in cluster.devices:
        found = metrics.needs[device.name]
        if found.need.high_bytes <= device.usable_bytes:
            continue
        message = (
            f"{device.name} is predicted to need {format_bytes(found.need.high_bytes)} with "
            f"padding and gaps (allocator: {found.allocator}), above its cap of "
            f"{format_bytes(device.usable_bytes)}, although its tensors fit: it may run out "
            f"of memory; --max-memory or --reserve leaves more"
        )
        yield "need_over_cap", message, ()


def _warnings(
    formulation: Formulation,
    solution: Solution,
    predicted: PredictedPlacement | None,
    fitted: FittedPlacement | None,
) -> Iterator[PlanWarning]:
    extraction = formulation.workload.extraction
    found = [*extraction.warnings, *formulation.constraints.warnings]
    found += left_over_warnings(extraction)
    found += _assumptions(formulation.workload.cluster, predicted)
    cluster = formulation.workload.cluster
    if predicted is not None:
        found += hint_warnings(formulation.graph, predicted.placement)
        facts = loading_facts(extraction.stored, cluster, predicted.placement)
        found += loading_warnings(facts, cluster)
    if extraction.unknown:
        message = "the shapes of these tensors are unknown; their bytes are not counted"
        found.append(("unknown_shape", message, extraction.unknown))
    if formulation.workload.wanted.fit:
        found += fit_warnings(formulation.workload, fitted)
    found += _caps_over_cards(formulation.workload.cluster)
    found += [(code, message, ()) for code, message in solution.warnings]
    if predicted and PEAK_OVER_CAP not in dict(solution.warnings):
        found += needs_over_caps(formulation.workload.cluster, predicted.metrics)
    for code, message, ops in found:
        first = tuple(ops[:_OPS_PER_WARNING])
        yield PlanWarning(code=code, message=message, count=max(1, len(ops)), ops=first)


def _assumptions(
    cluster: Cluster, predicted: PredictedPlacement | None
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yields warnings of assumptions about the devices."""
    ample = [device.name for device in cluster.devices if device.is_ample]
    if ample:
        peaks = predicted.metrics.peaks if predicted else {}
        sizes = [
            f"{name} ({format_bytes(peaks[name].high_bytes)})" if name in peaks else name
            for name in ample
        ]
        message = (
            f"the devices are not this machine's, and {', '.join(sizes)} is taken to have as much "
            f"memory as it needs: CPU:64GiB in --devices, or the cluster file, says how much it has"
        )
        yield "assumed_host", message, ()
    if pairs := cluster.assumed_links:
        link = ASSUMED_NETWORK_LINK
        message = (
            f"nobody said how fast the network between the machines is: {link.bandwidth / 1e9:g} "
            f"GB/s and {link.latency * 1e6:g} us are assumed between {pairs[0][0]} and "
            f"{pairs[0][1]} and every such pair; [network_link] in the cluster file says it"
        )
        yield "assumed_network", message, ()
