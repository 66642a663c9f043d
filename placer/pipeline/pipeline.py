"""The whole path: a TensorFlow program in, a plan out."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cost_models.clusters import parse_cluster
from cost_models.devices import Cluster, DeviceProperties
from cost_models.op_cost import OpCost
from placer.beside import beside
from placer.errors import NoSolutionError, ShapeError, UsageError
from placer.extraction import Extraction, extract
from placer.extraction.division.division import Division
from placer.graph.control_edges import add_control_edges
from placer.pipeline.costing import cost_ops
from placer.pipeline.fixes import Attempt, placed_fixes
from placer.pipeline.formulation import StepPeaks
from placer.pipeline.model_report import analyse, take_inventory
from placer.pipeline.posing import constraints_of, low_memory_edges, pose
from placer.pipeline.solved_plan import assemble_plan
from placer.plan.plan import Plan
from placer.plan.report import Report
from placer.plan.request import Options, describe_request
from placer.prediction import predict
from placer.prediction.predicted_step import describe_step
from placer.problem.constraints import Constraints
from placer.problem.placement_problem import PlacementProblem
from placer.solving.orders.placed_order import edges_of_placement
from placer.solving.solution import SolverParameters
from placer.strategies.requests import (
    HYBRID,
    PIPELINE,
    StrategyRequest,
    choose_plan,
    division_of,
    group_alone,
    read_strategy,
    tower_groups,
    tries_several,
)

_LOG = logging.getLogger(__name__)

UNKNOWN_SHARE = 0.01
"""``place`` accepts unknown shapes up to this share of the bytes of all tensors."""

CHANGES_SECONDS = 10.0
"""At most, for what would fit where nothing does, if the time limit leaves so much."""

REFERENCE_DEVICE = "1xA100-40GB"
"""What ``report`` shows times for when no devices are named."""


def place(source: Any, devices: str | Path, **options: Any) -> Plan:
    """The best placement of ``source`` on ``devices`` as a plan.

    ``source`` is a path (SavedModel folder, GraphDef, MetaGraphDef, Keras file), a ``tf.function``
    or ConcreteFunction, a Keras model or a ``tf.Graph``; ``devices`` a list such as
    ``"2xA100-40GB,CPU:64GiB"`` or the path of a ``cluster.toml``; for ``options`` see
    :class:`Options`.

    An infeasible problem is a plan too: its ``solver["status"]`` says so, and ``conflict`` why and
    what would fit, as far as that is found in what is left of the time limit.

    Raises :class:`UsageError` for a wrong request, :class:`ModelError` for a model that cannot be
    read, :class:`ShapeError` when too many shapes stay unknown.
    """
    wanted = Options(**options)
    if wanted.strategy is None:
        return place_once(source, devices, wanted, explains=True)
    return choose_plan(
        wanted.strategy,
        read_cluster(devices, wanted),
        wanted.batch_size,
        lambda strategy: place_once(
            source,
            devices,
            with_strategy(wanted, strategy),
            explains=not tries_several(read_strategy(wanted.strategy or strategy)),
        ),
    )


def place_once(source: Any, devices: str | Path, wanted: Options, *, explains: bool) -> Plan:
    """The plan for one way to run the batch; if nothing fits and it ``explains``, with why, and
    what would fit."""
    workload = prepare(source, devices, wanted)
    began = time.monotonic()
    plan = place_extraction(
        workload.extraction, workload.costs, workload.cluster, wanted, explains=explains
    )
    if explains and plan.conflict is not None and plan.solver["status"] == "INFEASIBLE":
        _LOG.info("searching what would fit")
        deadline = min(began + wanted.time_limit, time.monotonic() + CHANGES_SECONDS)
        attempt = placements_of(source, workload, wanted)
        found = placed_fixes(attempt, devices, wanted, plan.conflict, deadline)
        fixes = tuple(fix.row for fix in found)
        plan = replace(plan, conflict=replace(plan.conflict, fixes=fixes))
    return replace(plan, request=describe_request(devices, wanted))


def placements_of(source: Any, workload: Workload, asked: Options) -> Attempt:
    """Places ``workload``, which was prepared as ``asked``, on other devices or with other options;
    for another batch size ``source`` is read again."""

    def attempt(devices: str | Path, wanted: Options) -> Plan:
        if wanted.batch_size == asked.batch_size:
            work = replace(workload, cluster=read_cluster(devices, wanted))
        else:
            work = prepare(source, devices, wanted)
        return place_extraction(work.extraction, work.costs, work.cluster, wanted)

    return attempt


def with_strategy(wanted: Options, strategy: str) -> Options:
    """``wanted`` by a strategy.

    The stages of a pipeline are to be busy alike, unless the step time is asked for.
    """
    objective = wanted.objective
    if objective == "transfer" and read_strategy(strategy).kind == PIPELINE:
        objective = "throughput"
    return replace(wanted, strategy=strategy, objective=objective)


def report(source: Any, devices: str | Path | None = None, **options: Any) -> Report:
    """What is in ``source`` and what one step takes; with ``devices``, where it would run too.

    Shapes may stay unknown: the report lists them, and says so if they prevent a placement.
    Without ``devices`` the figures are for one accelerator, the reference device.  ``options``
    and errors as for :func:`place`.
    """
    wanted = Options(**options)
    return report_extraction(source, extract_program(source, wanted), devices, wanted)


def report_extraction(
    source: Any, extraction: Extraction, devices: str | Path | None, wanted: Options
) -> Report:
    """The report on a program that is extracted already."""
    cluster = read_cluster(devices or REFERENCE_DEVICE, wanted)
    costs, extraction = _cost(source, extraction, cluster, wanted)
    together = replace(wanted, pins={}, pin_types={}, keep_together=(), clear_devices=True)
    inventory_of = partial(take_inventory, extraction, costs)
    with beside(inventory_of, ops=len(extraction.graph.ops)) as taken:
        constraints = constraints_of(extraction, cluster, together)
        metrics = predict(extraction.graph, costs, constraints.first_choice, cluster)
        inventory = taken()
    plan = None
    if devices is not None:
        try:
            require_known_shapes(extraction)
            plan = place_extraction(extraction, costs, cluster, wanted, explains=True)
            if plan.conflict is not None:  # a report tries no other requests
                plan = replace(plan, conflict=replace(plan.conflict, fixes=()))
            plan = replace(plan, request=describe_request(devices, wanted))
        except ShapeError as error:
            unplaced = ("not_placed", f"not placed: {error}", ())
            extraction = replace(extraction, warnings=(*extraction.warnings, unplaced))
    reference = _reference(cluster)
    found = analyse(
        extraction,
        costs,
        metrics,
        plan,
        inventory=inventory,
        reference=reference.model or reference.name,
        calibration_error=reference.relative_error,
    )
    step = partial(
        describe_step, extraction.graph, costs, constraints.first_choice, cluster, metrics
    )
    return replace(found, step=step)


def place_extraction(
    extraction: Extraction,
    costs: Mapping[str, OpCost],
    cluster: Cluster,
    wanted: Options,
    *,
    explains: bool = False,
    posed: tuple[Constraints, PlacementProblem] | None = None,
) -> Plan:
    """The plan for a program that is extracted and costed already; if it ``explains``, with the
    conflict where it is proven that nothing fits.  ``posed`` is what :func:`pose` gave, if that is
    known already."""
    # numpy: a bare report needs none
    from placer.solving.caps.tightening import solve_under_peaks
    from placer.solving.conflicts.conflict import conflict_seconds, explain_conflict

    began = time.monotonic()
    asked = extraction.graph
    edges = low_memory_edges(extraction, costs, cluster, wanted)
    graph = add_control_edges(asked, edges)
    extraction = replace(extraction, graph=graph)
    if posed is None or edges:
        posed = pose(extraction, costs, cluster, wanted)
    constraints, problem = posed
    parameters = SolverParameters(time_limit_seconds=wanted.time_limit, seed=wanted.seed)
    searching = f"searching a placement of {len(graph.ops):,} ops"
    _LOG.info(searching, extra={"limit_seconds": wanted.time_limit})
    peaks = StepPeaks(graph, costs, problem)
    solution = solve_under_peaks(
        problem, peaks, parameters, find_lifetimes=peaks.possible_lifetimes
    )
    metrics, step = None, None
    if solution.device_of is None:
        edges = ()
    else:
        _LOG.info("predicting memory and times")
        placement = problem.placement(solution.device_of)
        edges = edges_of_placement(asked, costs, placement, cluster, edges, wanted.order)
        graph = add_control_edges(asked, edges)
        metrics = predict(graph, costs, placement, cluster)
        step = partial(describe_step, graph, costs, placement, cluster, metrics)
    plan = assemble_plan(
        extraction, cluster, costs, constraints, problem, solution, metrics, parameters
    )
    if explains and solution.unsolvable is not None:
        _LOG.info("searching what is in conflict")
        seconds = conflict_seconds(began + wanted.time_limit)
        plan = replace(plan, conflict=explain_conflict(solution.unsolvable, seconds))
    return replace(plan, step=step, control_edges=edges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A program with its costs, and the devices it is to run on."""

    extraction: Extraction
    costs: Mapping[str, OpCost]
    cluster: Cluster


def prepare(source: Any, devices: str | Path, wanted: Options) -> Workload:
    """Everything that placing ``source`` on ``devices`` needs to know; errors as for
    :func:`place`."""
    cluster = read_cluster(devices, wanted)
    division = None
    if wanted.strategy is not None:
        asked = read_strategy(wanted.strategy)
        stages = _place_part(source, asked, cluster, wanted) if asked.kind == HYBRID else None
        division = division_of(asked, cluster, stages)
    extraction = extract_program(source, wanted, division)
    require_known_shapes(extraction)
    costs, extraction = _cost(source, extraction, cluster, wanted)
    return Workload(extraction=extraction, costs=costs, cluster=cluster)


def _place_part(
    source: Any, asked: StrategyRequest, cluster: Cluster, wanted: Options
) -> Mapping[str, str]:
    """The placement of one tower of a hybrid on the first group of devices.

    Raises :class:`UsageError` without a batch size, :class:`NoSolutionError` if it does not fit.
    """
    group = tower_groups(asked, cluster)[0]
    if wanted.batch_size is None:
        raise UsageError(f"--strategy {asked} divides the batch: say how large it is: --batch-size")
    part = replace(wanted, strategy=None, batch_size=-(-wanted.batch_size // (asked.parts or 1)))
    extraction = extract_program(source, part)
    require_known_shapes(extraction)
    alone = group_alone(cluster, group)
    costs, extraction = _cost(source, extraction, alone, part)
    plan = place_extraction(extraction, costs, alone, part)
    if not plan.fits:
        raise NoSolutionError(
            f"--strategy {asked}: one tower of {part.batch_size} examples was not found to fit "
            f"{', '.join(group)}; fewer towers have more devices each"
        )
    return plan.placement


def extract_program(source: Any, wanted: Options, division: Division | None = None) -> Extraction:
    """The flat graph of ``source`` with its shapes bound, its batch divided."""
    _LOG.info("reading the model")
    return extract(
        source,
        tag_set=wanted.tag_set,
        signature=wanted.signature,
        outputs=wanted.outputs,
        batch_size=wanted.batch_size,
        shapes=wanted.shapes,
        dims=wanted.dims,
        allow_unsafe_keras=wanted.allow_unsafe_keras,
        division=division,
    )


def _cost(
    source: Any, extraction: Extraction, cluster: Cluster, wanted: Options
) -> tuple[dict[str, OpCost], Extraction]:
    _LOG.info("estimating costs of %s ops", f"{len(extraction.graph.ops):,}")
    return cost_ops(
        source,
        extraction,
        cluster,
        wanted.costs,
        trip_count=wanted.trip_count,
        allow_unsafe_keras=wanted.allow_unsafe_keras,
    )


def read_cluster(devices: str | Path, wanted: Options) -> Cluster:
    """The cluster that ``devices`` describes, under the caps and the reserve of ``wanted``.

    Raises :class:`UsageError` for an unknown device or a size that cannot be read.
    """
    try:
        return parse_cluster(str(devices), wanted.max_memory, wanted.reserve)
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error


def require_known_shapes(extraction: Extraction) -> None:
    """Raises :class:`ShapeError` unless nearly all bytes are of tensors with a known shape."""
    parts = (extraction.graph, *extraction.graph.functions.values())
    unknown, total = len(extraction.unknown), sum(len(part.tensors) for part in parts)
    if extraction.unknown_share > UNKNOWN_SHARE:
        roots = extraction.unknown_roots or extraction.unknown
        inputs = ", ".join(item.key for item in extraction.inputs[:5])
        is_bound = extraction.bindings.get("batch_size") is not None
        batch = "" if is_bound else "the batch with --batch-size N, "
        raise ShapeError(
            f"{unknown:,} of {total:,} tensors have an unknown shape; they get lost at "
            f"{', '.join(roots[:3])}; bind {batch}an input ({inputs}) or such an op with --shape "
            f"NAME:32x128"
        )


def _reference(cluster: Cluster) -> DeviceProperties:
    """The device that everything is reported on."""
    return next((d for d in cluster.devices if d.type != "CPU"), cluster.host)
