"""What would fit, where it is proven that nothing does."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path

from placer.pipeline.fixes import Attempt, find_changes
from placer.pipeline.placement import place_workload
from placer.pipeline.preparation import prepare
from placer.pipeline.workload import Workload
from placer.plan.plan import Plan
from placer.plan.request import Options

_LOG = logging.getLogger(__name__)

CHANGES_SECONDS = 10.0
"""At most, for what would fit where nothing does, if the time limit leaves so much."""


def with_fixes(plan: Plan, workload: Workload, devices: str | Path, deadline: float) -> Plan:
    """``plan`` with what would fit, if it is proven that nothing does."""
    if plan.conflict is None or plan.solver.status != "INFEASIBLE":
        return plan
    _LOG.info("searching what would fit")
    until = min(deadline, time.monotonic() + CHANGES_SECONDS)
    attempt = placements_of(workload)
    found = find_changes(attempt, devices, workload.wanted, plan.conflict, until)
    fixes = tuple(fix.row for fix in found)
    return replace(plan, conflict=replace(plan.conflict, fixes=fixes))


def placements_of(workload: Workload) -> Attempt:
    """Places ``workload`` on other devices or with other options; for another batch size its
    source is read again."""

    def attempt(devices: str | Path, wanted: Options) -> Plan:
        if wanted.batch_size == workload.wanted.batch_size:
            return place_workload(workload.on(devices, wanted))
        return place_workload(prepare(workload.source, devices, wanted))

    return attempt
