"""Advice in a plan: changes that would fit, ways that may be better."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from placer.fitting.placed_order import FREE
from placer.graph.passes.roles import find_roles
from placer.pipeline.fixes import with_fixes
from placer.pipeline.workload import Workload
from placer.plan.plan import Plan
from placer.plan.request import Options, describe_request
from placer.plan.rows import PlanWarning


def advise(plan: Plan, workload: Workload, devices: str | Path, deadline: float) -> Plan:
    """``plan`` with the changes that would fit, as far as they are found before the ``deadline``,
    with the ways that may be better, and with what was asked for."""
    wanted = workload.wanted
    plan = with_fixes(plan, workload, devices, deadline)
    notes = (_fit_instead(plan, workload), _whole_instead(plan, wanted))
    plan = replace(plan, warnings=(*plan.warnings, *filter(None, notes)))
    return replace(plan, request=describe_request(devices, wanted))


def _fit_instead(plan: Plan, workload: Workload) -> PlanWarning | None:
    """A warning for a plan that spills ops of a step that trains: what may keep them."""
    wanted = workload.wanted
    spills = plan.fits and any(device.spilled_bytes for device in plan.devices)
    if not spills or wanted.fit or wanted.strategy or wanted.order != FREE:
        return None
    if not find_roles(workload.graph).gradients:
        return None
    message = (
        "ops are spilled to the host; --fit auto may keep them on the accelerators by rewriting "
        "the step: gradients released, tensors computed again (not tried)"
    )
    return PlanWarning(code="fit_instead", message=message, count=1, ops=())


def _whole_instead(plan: Plan, wanted: Options) -> PlanWarning | None:
    """A warning for a plan that divides the batch: the whole may be faster."""
    if not plan.fits or not plan.model.get("division"):
        return None
    message = (
        f"--strategy {wanted.strategy} was not compared with the whole batch, which may be faster "
        "where it fits (not tried); placer auto compares them"
    )
    return PlanWarning(code="whole_instead", message=message, count=1, ops=())
