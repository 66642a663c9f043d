"""The program without the strategy that was asked for: a strategy may cost time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from placer.pipeline.formulation import formulate
from placer.pipeline.predicted_placement import predict_placement
from placer.pipeline.preparation import prepare
from placer.plan.plan import Plan, over_caps
from placer.plan.request import Options
from placer.plan.rows import PlanWarning

SLOWER = "strategy_slower"

_BASELINES = {"one-device": "on one device", "heft": "by list scheduling (HEFT)"}
"""Placements of the whole batch that need no search."""

_CLEARLY = 1.01
"""Predicted times that differ by less are alike."""


def warn_if_slower(plan: Plan, source: Any, devices: str | Path, wanted: Options) -> Plan:
    """``plan`` with a warning if the whole batch fits and is predicted to be faster than the
    parts that the plan makes of it."""
    seconds = plan.metrics.step_seconds
    if not plan.fits or seconds is None or not plan.model.get("division"):
        return plan
    whole = fastest_whole(source, devices, wanted)
    if whole is None or seconds < _CLEARLY * whole[0]:
        return plan
    message = (
        f"--strategy {wanted.strategy} is predicted to be slower than none: "
        f"{1e3 * seconds:,.3g} ms a step, the whole batch {1e3 * whole[0]:,.3g} ms "
        f"{_BASELINES[whole[1]]}"
    )
    warning = PlanWarning(code=SLOWER, message=message, count=1, ops=())
    return replace(plan, warnings=(*plan.warnings, warning))


def fastest_whole(source: Any, devices: str | Path, wanted: Options) -> tuple[float, str] | None:
    """The least predicted step in seconds of the whole batch, and the name of the baseline that
    places it so; ``None`` if none of them fits the caps."""
    # numpy: a bare report needs none
    from placer.solving.solver import solve

    undivided = replace(wanted, strategy=None, objective="step-time", order="free")
    workload = prepare(source, devices, undivided)
    problem = formulate(workload).problem
    caps = {device.name: device.usable_bytes for device in workload.cluster.devices}
    found = []
    for name in _BASELINES:
        device_of = solve(problem, solver=name).device_of
        if device_of is None:
            continue
        placement = problem.placement(device_of)
        metrics = predict_placement(workload, placement, with_needs=False).metrics
        peaks = {device: peak.high_bytes for device, peak in metrics.peaks.items()}
        if not over_caps(peaks, caps):
            found.append((metrics.schedule.step_seconds, name))
    return min(found, key=lambda each: each[0], default=None)
