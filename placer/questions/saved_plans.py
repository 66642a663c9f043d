"""A plan out of a file with its step predicted again."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from placer.plan.plan import Plan
from placer.prediction import predict
from placer.prediction.metrics import Metrics
from placer.prediction.predicted_step import describe_step
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
    workload, _ = reopen(plan, source, **changes)
    graph = workload.extraction.graph
    metrics = predict(graph, workload.costs, plan.placement, workload.cluster)
    step = partial(describe_step, graph, workload.costs, plan.placement, workload.cluster, metrics)
    return replace(plan, step=step, warnings=(*plan.warnings, *_differences(plan, metrics)))


def _differences(plan: Plan, metrics: Metrics) -> list[dict[str, Any]]:
    """A warning if step or peaks are predicted otherwise than the plan has them."""
    was, now = plan.metrics["step_seconds"], metrics.schedule.step_seconds
    peaks = [
        row["name"]
        for row in plan.devices
        if row["peak_memory_bytes"] != metrics.peaks[row["name"]].high_bytes
    ]
    if abs(now - was) <= _TOLERANCE * was and not peaks:
        return []
    message = (
        f"predicted again, the step takes {now:.6g} s (the plan says {was:.6g} s)"
        + (f" and peaks differ on {', '.join(peaks)}" if peaks else "")
        + ": the plan was made with other costs, devices or another version; figures are the "
        "plan's, pictures are predicted now"
    )
    return [{"code": "predicted_again", "message": message, "count": 1, "ops": []}]
