"""A plan out of a file: its model read again, its step predicted again."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from cost_models.byte_sizes import format_seconds
from cost_models.clusters import Devices
from placer.errors import ShapeError, UsageError
from placer.extraction.extraction import of_plan
from placer.graph.control_edges import add_control_edges
from placer.pipeline.predicted_placement import predict_placement
from placer.pipeline.preparation import decide_strategy, needs_trials, prepare
from placer.pipeline.solved_plan import plan_metrics, step_memory
from placer.pipeline.workload import Workload
from placer.plan.plan import Plan
from placer.plan.request import Options, requested_options, require_options
from placer.plan.rows import PlanWarning
from placer.prediction.metrics import Metrics


def reopen(plan: Plan, source: Any = None, **changes: Any) -> Workload:
    """The workload that ``plan`` was made for, as its request says.

    Raises :class:`UsageError` if the plan does not say enough, or the model is another one.
    """
    require_options(changes)
    kept = source is None
    source = plan.model["path"] or None if source is None else source
    devices = plan.request.get("devices")
    if source is None or devices is None:
        raise UsageError(
            "the plan is of a program that is in no file: give the program (--model)"
            if source is None
            else "the plan does not say its devices: make it again with this version"
        )
    if kept and "://" in source:
        raise UsageError(
            f"the model of the plan is on another machine: name it with --model {source}"
        )
    if source == plan.model["path"] and "://" not in source and not os.path.exists(source):
        raise UsageError(f"the model of the plan is not at {source}: name it with --model")
    for name in (devices, plan.request.get("costs") if "costs" not in changes else None):
        if isinstance(name, str) and os.path.exists(name) and not os.path.isfile(name):
            raise UsageError(f"the plan names {name}, which is not a file: make the plan again")
    other = f"the plan is of another model than {source}: name the right one with --model"
    try:
        with of_plan(plan.model):
            workload = prepare(source, devices, requested_options(plan.request, **changes))
    except ShapeError as error:  # the plan's own model had none that were unknown
        raise UsageError(f"{other} ({error})") from error
    if workload.graph.fingerprint != plan.model["fingerprint"]:
        raise UsageError(other)
    if plan.placement:
        plan.check_ops(workload.graph.ops)
    workload = workload.rewritten(plan.rewriting)
    return workload.with_graph(add_control_edges(workload.graph, plan.control_edges))


def reopen_as_made(plan: Plan, source: Any = None, **changes: Any) -> Workload:
    """As :func:`reopen`, under all that decided the placement: raises :class:`UsageError` for costs
    and a device function that the plan does not keep and ``changes`` do not give."""
    lost = {key for key, value in plan.request.items() if value == "given"} - changes.keys()
    if "costs" in lost:
        raise UsageError("the plan was made with costs that it does not keep: give them (--costs)")
    if "device_function" in lost:
        raise UsageError(
            "the plan was made with a device function, which it does not keep: give it in Python, "
            "as in placer.explain(plan, device_function=FUNCTION)"
        )
    return reopen(plan, source, **changes)


def with_step(plan: Plan, source: Any = None, **changes: Any) -> Plan:
    """``plan`` with the step that its placement takes.

    ``source`` is the model, by default the path in the plan; ``changes`` are options in which this
    differs from the request that the plan remembers.  Where the plan's figures come out otherwise
    (costs that are not here, another version), a warning of the plan says so.

    Raises :class:`~placer.errors.UsageError` if the plan does not say enough or is of another
    model.
    """
    predicted = predict_placement(reopen(plan, source, **changes), plan.placement)
    warnings = (*plan.warnings, *_differences(plan, predicted.metrics))
    return replace(plan, step=predicted.step, warnings=warnings)


def predict_now(plan: Plan, source: Any, devices: Devices, **options: Any) -> Plan | None:
    """``plan`` with the peaks and metrics that its own placement has for ``source`` on ``devices``
    now; ``None`` if its placement is not one of that program and those devices.

    ``options`` are those of a placement (:class:`~placer.plan.request.Options`).
    """
    wanted = decide_strategy(devices, Options(**options))
    if needs_trials(wanted):
        return None
    workload = prepare(source, devices, wanted)
    names = {device.name for device in workload.cluster.devices}
    if workload.graph.fingerprint != plan.model["fingerprint"] or names != set(plan.peak_bytes):
        return None
    metrics = predict_placement(
        workload, plan.placement, plan.control_edges, plan.rewriting
    ).metrics
    rows = [replace(row, **step_memory(metrics, row.name)) for row in plan.devices]
    return replace(plan, devices=tuple(rows), metrics=plan_metrics(metrics))


def _differences(plan: Plan, metrics: Metrics) -> list[PlanWarning]:
    """A warning if step or peaks are predicted otherwise than the plan has them."""
    was, now = plan.metrics.step_seconds or 0.0, metrics.schedule.step_seconds
    peaks = [
        device.name
        for device in plan.devices
        if device.peak_memory_bytes != metrics.peaks[device.name].high_bytes
    ]
    if abs(now - was) <= 1e-9 * was and not peaks:
        return []
    message = (
        f"predicted again, the step takes {format_seconds(now)}, in the plan {format_seconds(was)}"
        + (f" and peaks differ on {', '.join(peaks)}" if peaks else "")
        + ": the plan was made with other costs, devices or another version; figures are the "
        "plan's, pictures are predicted now"
    )
    return [PlanWarning(code="predicted_again", message=message)]
