"""A placement that fits only once the step is rewritten: gradients released, ops in order, tensors
computed again.

The ops are placed as if there were more memory than there is, then the step is made to fit where
they are.  With several accelerators there are several such placements, for a little more memory and
for much more: what is moved between devices costs time, too, and the most promising comes first.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cost_models.byte_sizes import AMPLE_BYTES, format_bytes
from cost_models.devices import Cluster, DeviceProperties
from placer.fitting.fitted_step import FitRequest, FittedStep
from placer.fitting.step_fitting import fit_step
from placer.graph.passes.roles import find_roles
from placer.graph.program_source import Warning_
from placer.pipeline.formulation import Formulation, formulate
from placer.pipeline.predicted_placement import PredictedPlacement, predict_placement
from placer.pipeline.searching import find_placement, predict_solution
from placer.pipeline.workload import Workload
from placer.plan.request import Options
from placer.problem.limits import overruns
from placer.problem.placement_costs import cost_link
from placer.solving.process import clock
from placer.solving.solution import Solution, Status

_LOG = logging.getLogger(__name__)


_LEAST_SECONDS = 1.0
"""Seconds that each search, and what makes a step fit, have at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedPlacement:
    """A placement, found for more memory than there is, and what the step becomes with it; the
    ``seconds`` of all searches for it."""

    formulation: Formulation
    solution: Solution
    predicted: PredictedPlacement
    step: FittedStep
    seconds: float = 0.0


def fit_workload(workload: Workload) -> FittedPlacement | None:
    """Returns what :func:`_fitted` finds, with the seconds that it took."""
    begun = clock.monotonic()
    found = _fitted(workload)
    return found and replace(found, seconds=clock.monotonic() - begun)


def _fitted(workload: Workload) -> FittedPlacement | None:
    """The first placement that keeps the caps without spilling, the step rewritten if it must be;
    else the one that comes nearest, ``None`` if there is none at all.

    It takes about the time limit for the placements, and once more that for making the step fit
    with the most promising of them, each in most of what is left.
    """
    wanted = replace(workload.wanted, offload="never", order="free", fit="", max_slowdown=None)
    deadline, tries = clock.monotonic() + 2 * wanted.time_limit, _relieved(workload)
    if wanted.work_limit is None:
        share = wanted.time_limit / sum(map(len, tries))
        wanted = replace(wanted, time_limit=max(share, _LEAST_SECONDS))
    best: FittedPlacement | None = None
    for clusters in tries:
        placed: list[FittedPlacement] = []
        for found in _placements(workload, wanted, clusters):
            if found.step.fits:
                return found
            placed.append(found)
        for number, found in enumerate(sorted(placed, key=_expected_seconds)):
            left = deadline - clock.monotonic()
            if number and left < 0.25 * workload.wanted.time_limit:  # too little for another one
                break
            share = 1.0 if len(placed) == 1 else 0.7  # the rest is for others
            fitted = _fit(found.formulation, found.solution, max(share * left, _LEAST_SECONDS))
            if best is None or fitted.step.rank < best.step.rank:
                best = fitted
            if fitted.step.fits:
                return best
    return best


def _placements(
    workload: Workload, wanted: Options, clusters: Sequence[Cluster]
) -> Iterator[FittedPlacement]:
    """The placements found on the ``clusters``, as the step is; once the memory of one is enough,
    the last is what is left to try."""
    seen: set[tuple[int, ...]] = set()
    is_enough = False
    for cluster in clusters:
        if is_enough and cluster is not clusters[-1]:
            continue
        formulation = formulate(replace(workload, wanted=wanted, cluster=cluster))
        solution = find_placement(formulation)
        if solution.device_of is None or solution.device_of in seen:
            continue
        seen.add(solution.device_of)
        is_enough = solution.status is not Status.UNKNOWN
        predicted = predict_solution(formulation, solution)
        assert predicted is not None
        yield FittedPlacement(
            formulation=replace(formulation, workload=workload),
            solution=solution,
            predicted=predicted,
            step=FittedStep(over_bytes=predicted.metrics.over_caps(workload.cluster.caps)),
        )


def _expected_seconds(found: FittedPlacement) -> float:
    """The step, and what is over to the host and back: no more than what fitting adds, mostly."""
    link = cost_link(found.formulation.workload.cluster)
    over = sum(found.step.over_bytes.values())
    return found.predicted.metrics.schedule.step_seconds + 2 * over / link.bandwidth


def _relieved(workload: Workload) -> list[list[Cluster]]:
    """The cluster, then with more memory on the devices that compute; with a single one of them
    first with room for all, since there is nowhere else to go, and only then as it is."""
    cluster = workload.cluster
    workers = set(cluster.workers)

    def with_limits(factor: float) -> Cluster:
        def limit(device: DeviceProperties) -> int:
            more = device.usable_bytes * factor + device.reserve_bytes
            return (
                int(min(more, AMPLE_BYTES)) if device.name in workers else device.memory_limit_bytes
            )

        devices = (replace(each, memory_limit_bytes=limit(each)) for each in cluster.devices)
        return replace(cluster, devices=tuple(devices))

    ample = with_limits(AMPLE_BYTES)
    if len(workers) == 1:
        return [[ample], [cluster]]
    # with the memory of the accelerators raised for the search, in this order
    return [[cluster, *map(with_limits, (1.25, 1.6, 2.2, 3.2)), ample]]


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
    return FittedPlacement(
        formulation=formulation, solution=solution, predicted=predicted, step=step
    )


def fit_warnings(workload: Workload, fitted: FittedPlacement | None) -> Iterator[Warning_]:
    """Warnings if nothing could be recomputed, or if the nearest step is still over the caps."""
    if not find_roles(workload.graph).gradients and "recompute" in workload.wanted.fit_means:
        message = f"--fit {workload.wanted.fit}: without gradients there is nothing to recompute"
        yield "nothing_to_recompute", message, ()
    if fitted is None or fitted.step.fits:
        return
    over = "; ".join(overruns(workload.cluster.devices, fitted.step.over_bytes))
    limit = workload.wanted.most_slowdown
    within = "" if limit is None else f" within {limit:.0%} more time"
    message = (
        f"--fit {workload.wanted.fit} did not make the step fit{within}: with the best rewriting "
        f"found {over}"
    )
    floors = {
        name: floor
        for name, floor in fitted.step.floors.items()
        if floor.bytes > workload.cluster.device(name).usable_bytes
    }
    for name, floor in floors.items():
        least = format_bytes(floor.bytes)
        message += f"; with any rewriting, {name} requires at least {least} while {floor.op} runs"
    if fitted.step.is_cut and not floors:
        message += "; the time limit ended the search, a longer one (--time-limit) may find more"
    yield "fit_not_enough", message, tuple(floor.op for floor in floors.values())
