"""A placement that fits only once the step is rewritten: gradients released, ops in order, tensors
computed again.

The ops are placed as if there were more memory than there is, then the step is made to fit where
they are.  With several accelerators that is tried for a little more memory first: what is moved
between devices costs time, too.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cost_models.byte_sizes import AMPLE_BYTES, format_bytes
from cost_models.devices import Cluster
from placer.fitting.fitted_step import FitRequest, FittedStep
from placer.fitting.step_fitting import fit_step
from placer.graph.passes.roles import find_roles
from placer.graph.program_source import Warning_
from placer.pipeline.formulation import Formulation, formulate
from placer.pipeline.predicted_placement import PredictedPlacement, predict_placement
from placer.pipeline.searching import find_placement, predict_solution
from placer.pipeline.workload import Workload
from placer.solving.caps.predictions import PEAK_OVER_CAP
from placer.solving.process import clock
from placer.solving.solution import Solution, Status

_LOG = logging.getLogger(__name__)


_LEAST_SECONDS = 1.0
"""Seconds that each search, and what makes a step fit, have at least."""

_RELIEFS = (1.25, 1.6, 2.2, 3.2)
"""Factors by which the memory of several accelerators is raised for the search, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedPlacement:
    """A placement, found for more memory than there is, and what the step becomes with it."""

    formulation: Formulation
    solution: Solution
    predicted: PredictedPlacement
    step: FittedStep


def fit_workload(workload: Workload) -> FittedPlacement | None:
    """The first placement that keeps the caps without spilling, the step rewritten if it must be;
    else the one that comes nearest, ``None`` if there is none at all.

    It takes about the time limit, and once more that for the placements, in equal shares.
    """
    wanted = replace(workload.wanted, offload="never", order="free", fit="", max_slowdown=None)
    limit, is_timed = wanted.time_limit, wanted.work_limit is None
    deadline = clock.monotonic() + 2 * limit
    best: FittedPlacement | None = None
    tries = list(_relieved(workload))
    if is_timed:
        wanted = replace(wanted, time_limit=max(limit / len(tries), _LEAST_SECONDS))
    for number, cluster in enumerate(tries):
        left = deadline - clock.monotonic()
        if number and left < 0:
            break
        until = clock.monotonic() + (left / (len(tries) - number) if is_timed else left)
        relieved = replace(workload, wanted=wanted, cluster=cluster)
        formulation = formulate(relieved)
        solution = find_placement(formulation)
        if solution.device_of is None:
            continue
        own = replace(formulation, workload=workload)
        predicted = predict_solution(formulation, solution)
        if predicted is not None and not predicted.metrics.over_caps(workload.cluster.caps):
            return FittedPlacement(
                formulation=own, solution=solution, predicted=predicted, step=FittedStep()
            )
        found = _fit(own, solution, max(until - clock.monotonic(), _LEAST_SECONDS))
        if best is None or found.step.rank < best.step.rank:
            best = found
        if found.step.fits:
            break
    return best


def _relieved(workload: Workload) -> Iterator[Cluster]:
    """The cluster, then with more memory on the devices that compute; with a single one of them
    the other way round, since there is nowhere else to go."""
    cluster = workload.cluster
    workers = set(cluster.workers)
    if len(workers) > 1:
        yield cluster
    for factor in _RELIEFS if len(workers) > 1 else ():
        devices = tuple(
            replace(
                device,
                memory_limit_bytes=int(device.usable_bytes * factor) + device.reserve_bytes,
            )
            if device.name in workers
            else device
            for device in cluster.devices
        )
        yield replace(cluster, devices=devices)
    devices = tuple(
        replace(device, memory_limit_bytes=AMPLE_BYTES) if device.name in workers else device
        for device in cluster.devices
    )
    yield replace(cluster, devices=devices)
    if len(workers) == 1:
        yield cluster


def _fit(formulation: Formulation, solution: Solution, seconds: float) -> FittedPlacement:
    workload = formulation.workload
    assert solution.device_of is not None
    placement = formulation.problem.placement(solution.device_of)
    _LOG.info("making the step fit", extra={"limit_seconds": seconds})
    request = FitRequest(
        means=workload.wanted.fit_means,
        seconds=seconds,
        most_slowdown=workload.wanted.most_slowdown,
    )
    step = fit_step(workload.graph, workload.costs, placement, workload.cluster, request)
    predicted = predict_placement(workload, placement, step.control_edges, step.rewriting)
    step = replace(step, over_bytes=predicted.metrics.over_caps(workload.cluster.caps))
    if step.fits:
        solution = _within_caps(solution)
    return FittedPlacement(
        formulation=formulation, solution=solution, predicted=predicted, step=step
    )


def _within_caps(solution: Solution) -> Solution:
    """``solution`` without the warning and the conflict of a placement over its caps: the rewritten
    step keeps them."""
    if solution.status is not Status.UNKNOWN:
        return solution
    warnings = tuple(found for found in solution.warnings if found[0] != PEAK_OVER_CAP)
    return replace(solution, status=Status.FEASIBLE, conflict=None, warnings=warnings)


def fit_warnings(workload: Workload, fitted: FittedPlacement | None) -> Iterator[Warning_]:
    """Warnings if nothing could be recomputed, or if the nearest step is still over the caps."""
    if not find_roles(workload.graph).gradients and "recompute" in workload.wanted.fit_means:
        message = "the graph computes no gradients, so --fit recompute has nothing to recompute"
        yield "nothing_to_recompute", message, ()
    if fitted is None or fitted.step.fits:
        return
    over = ", ".join(f"{n} by {format_bytes(size)}" for n, size in fitted.step.over_bytes.items())
    limit = workload.wanted.most_slowdown
    within = "" if limit is None else f" within {limit:.0%} more time"
    message = (
        f"--fit {workload.wanted.fit} is not enough{within}: the best step exceeds limits: {over}"
    )
    floors = {
        name: floor
        for name, floor in fitted.step.floors.items()
        if floor.bytes > workload.cluster.device(name).usable_bytes
    }
    for name, floor in floors.items():
        message += f"; {floor.op} alone requires {format_bytes(floor.bytes)} on {name}"
    if fitted.step.is_cut:
        message += (
            f"; the time limit of {workload.wanted.time_limit:g} s ended the search, "
            "a longer one (--time-limit) may find more"
        )
    yield "fit_not_enough", message, tuple(floor.op for floor in floors.values())
