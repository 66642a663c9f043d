"""A plan out of a file with its step predicted again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from placer.pipeline.predicted_placement import predict_placement
from placer.plan.plan import Plan
from placer.plan.rows import PlanWarning
from placer.prediction.metrics import Metrics
from placer.questions.explanation import reopen

_TOLERANCE = 1e-9


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


def _differences(plan: Plan, metrics: Metrics) -> list[PlanWarning]:
    """A warning if step or peaks are predicted otherwise than the plan has them."""
    was, now = plan.metrics.step_seconds or 0.0, metrics.schedule.step_seconds
    peaks = [
        device.name
        for device in plan.devices
        if device.peak_memory_bytes != metrics.peaks[device.name].high_bytes
    ]
    if abs(now - was) <= _TOLERANCE * was and not peaks:
        return []
    message = (
        f"predicted again, the step takes {now:.6g} s (the plan says {was:.6g} s)"
        + (f" and peaks differ on {', '.join(peaks)}" if peaks else "")
        + ": the plan was made with other costs, devices or another version; figures are the "
        "plan's, pictures are predicted now"
    )
    return [PlanWarning(code="predicted_again", message=message)]
